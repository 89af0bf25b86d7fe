//! Questions as they are asked: written once, and known by what a person reads of them.

use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::elicitation::{ElicitParams, FormParams};
use mrtr_schema::input::InputRequest;
use mrtr_schema::jsonrpc::{JsonText, ObjectWriter};
use mrtr_schema::method;

use crate::asks::{Asks, missing_of};
use crate::form::Form;
use crate::rounds::Pin;

/// A question that can be asked.
#[derive(Debug)]
pub(crate) struct Question {
    /// The request, as JSON.
    text: JsonText,
    pin: Pin,
    needs: [Option<Asks>; 3],
}

impl Question {
    /// A request; an error says why it cannot be asked.
    pub(crate) fn new(request: &InputRequest) -> Result<Self, String> {
        request.check()?;
        let text = JsonText::new(request).map_err(|error| error.to_string())?;
        let pin = match request {
            // All that a person reads but the query, where one-time tokens tend to be.
            InputRequest::Elicit(ElicitParams::Url(params)) => {
                let mut params = params.clone();
                params.url.truncate(params.url.find(['?', '#']).unwrap_or(params.url.len()));
                let read = JsonText::new(&InputRequest::Elicit(ElicitParams::Url(params)));
                pin_of(&read.map_err(|error| error.to_string())?)
            }
            _ => pin_of(&text),
        };
        Ok(Self { text, pin, needs: Asks::of(request) })
    }

    /// A form with the fields of `form`.
    pub(crate) fn form(message: &str, form: &Form) -> Self {
        // As `InputRequest` is written, with a schema that was written before.
        let length = message.len() + form.text.get().len();
        let params = ObjectWriter::with_capacity(length + 64)
            .text("mode", "form")
            .text("message", message)
            .written("requestedSchema", &form.text);
        let request = ObjectWriter::with_capacity(length + 128)
            .text("method", method::ELICITATION_CREATE)
            .written("params", &params.end());
        let text = request.end();
        Self { pin: pin_of(&text), text, needs: [Some(Asks::Form), None, None] }
    }

    /// The same question with the reason why it is asked again. An answer to it is held against this one.
    pub(crate) fn again(&self, reason: &str) -> Self {
        let text = self.with(reason).unwrap_or_else(|| self.text.clone());
        Self { text, ..*self }
    }

    fn with(&self, reason: &str) -> Option<JsonText> {
        let request = serde_json::from_str(self.text.get()).ok()?;
        let InputRequest::Elicit(ElicitParams::Form(form)) = request else { return None };
        let message = format!("{}\n(The last answer did not fit: {reason})", form.message);
        JsonText::new(&InputRequest::Elicit(ElicitParams::Form(FormParams { message, ..form })))
            .ok()
    }

    /// The request, as JSON.
    pub(crate) fn text(&self) -> &JsonText {
        &self.text
    }

    /// What its answer is bound to.
    pub(crate) fn pin(&self) -> Pin {
        self.pin
    }

    /// What the client lacks to be asked this, if it lacks anything.
    pub(crate) fn missing(&self, capabilities: &ClientCapabilities) -> Option<ClientCapabilities> {
        missing_of(self.needs.into_iter().flatten(), capabilities)
    }
}

fn pin_of(text: &JsonText) -> Pin {
    Pin::of(&[text.get().as_bytes()])
}

#[cfg(test)]
mod tests {
    use mrtr_schema::elicitation::UrlParams;
    use mrtr_schema::form::{Field, FormSchema};

    use super::*;

    fn form(message: &str) -> InputRequest {
        let requested_schema = FormSchema::new([Field::text("a")]);
        InputRequest::Elicit(ElicitParams::Form(FormParams {
            message: message.into(),
            requested_schema,
        }))
    }

    fn url(url: &str) -> InputRequest {
        InputRequest::Elicit(ElicitParams::Url(UrlParams { message: "m".into(), url: url.into() }))
    }

    fn pin(request: &InputRequest) -> Pin {
        Question::new(request).unwrap().pin()
    }

    #[test]
    fn an_answer_is_bound_to_what_is_read() {
        assert_eq!(pin(&form("a")), pin(&form("a")));
        assert_ne!(pin(&form("a")), pin(&form("b")));
        assert_eq!(pin(&url("https://a.example/x?t=1")), pin(&url("https://a.example/x?t=2#f")));
        assert_ne!(pin(&url("https://a.example/x")), pin(&url("https://b.example/x")));
        assert!(Question::new(&url("javascript:alert(1)")).is_err());
    }

    #[test]
    fn a_form_is_written_as_any_request() {
        let fields = FormSchema::new([Field::text("a")]);
        let quick = Question::form("\"a\"", &Form::new(fields).unwrap());
        let slow = Question::new(&form("\"a\"")).unwrap();
        assert_eq!(quick.text().get(), slow.text().get());
        assert_eq!((quick.pin(), quick.needs), (slow.pin(), slow.needs));
    }

    #[test]
    fn the_reason_is_read_and_changes_nothing_else() {
        let question = Question::new(&form("Name?")).unwrap();
        let again = question.again("it is too long");
        assert_eq!(again.pin(), question.pin());
        let message = "Name?\n(The last answer did not fit: it is too long)";
        assert_eq!(again.text().get(), JsonText::new(&form(message)).unwrap().get());
        let page = Question::new(&url("https://a.example/")).unwrap();
        assert_eq!(page.again("x").text().get(), page.text().get());
    }
}
