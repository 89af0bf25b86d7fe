//! Questions as they are asked: written once, and known by what a person reads of them.

use std::sync::Arc;

use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::elicitation::{ElicitParams, FormParams};
use mrtr_schema::input::InputRequest;
use mrtr_schema::json::{ObjectWriter, RawJson};
use mrtr_schema::method;

use crate::client_feature::{ClientFeature, missing_capabilities};
use crate::form::Form;
use crate::rounds::Pin;

/// A question that can be asked.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    what: What,
    pin: Pin,
    needs: [Option<ClientFeature>; 3],
}

/// It is written when it goes out, and not where it was answered before.
#[derive(Debug, Clone)]
enum What {
    /// A form: what it says above its fields, and those.
    Form(String, Arc<Form>),
    /// Any other request, as JSON.
    Other(RawJson),
}

impl Question {
    /// A request; an error says why it cannot be asked.
    pub(crate) fn new(request: InputRequest) -> Result<Self, String> {
        request.check()?;
        let written = |request| RawJson::new(request).map_err(|error| error.to_string());
        let needs = ClientFeature::required_by(&request);
        let (text, read) = match request {
            InputRequest::Elicit(ElicitParams::Form(FormParams { message, requested_schema })) => {
                return Ok(Self::form(message, Arc::new(Form::new(requested_schema)?)));
            }
            // All that a person reads but the query, where one-time tokens tend to be.
            InputRequest::Elicit(ElicitParams::Url(ref params)) => {
                let mut params = params.clone();
                params.url.truncate(params.url.find(['?', '#']).unwrap_or(params.url.len()));
                let read = InputRequest::Elicit(ElicitParams::Url(params));
                (written(&request)?, Some(written(&read)?))
            }
            other => (written(&other)?, None),
        };
        let pin = Pin::of(&[read.as_ref().unwrap_or(&text).get().as_bytes()]);
        Ok(Self { what: What::Other(text), pin, needs })
    }

    /// A form with this message.
    pub(crate) fn form(message: String, form: Arc<Form>) -> Self {
        let pin = Pin::of(&[b"form", &form.digest.0, message.as_bytes()]);
        Self {
            what: What::Form(message, form),
            pin,
            needs: [Some(ClientFeature::Form), None, None],
        }
    }

    /// The same question with the reason why it is asked again, where it has a place for that. An answer to it is held
    /// against this one.
    pub(crate) fn again(&self, reason: &str) -> Self {
        let mut again = self.clone();
        if let What::Form(message, _) = &mut again.what {
            *message = format!("{message}\n(The last answer did not fit: {reason})");
        }
        again
    }

    /// Writes the request as the member `key`.
    pub(crate) fn write(&self, key: &str, into: ObjectWriter) -> ObjectWriter {
        let (message, form) = match &self.what {
            What::Form(message, form) => (message, form),
            What::Other(text) => return into.written(key, text),
        };
        // As `InputRequest` is written, with a schema that was written before.
        into.object(key, |request| {
            request.text("method", method::ELICITATION_CREATE).object("params", |params| {
                let params = params.text("mode", "form").text("message", message);
                params.written("requestedSchema", &form.text)
            })
        })
    }

    /// About how long it is when it is written.
    pub(crate) fn length(&self) -> usize {
        match &self.what {
            What::Form(message, form) => 100 + message.len() + form.text.get().len(),
            What::Other(text) => text.get().len(),
        }
    }

    /// What its answer is bound to.
    pub(crate) fn pin(&self) -> Pin {
        self.pin
    }

    /// What the client lacks to be asked this, if it lacks anything.
    pub(crate) fn missing(&self, capabilities: &ClientCapabilities) -> Option<ClientCapabilities> {
        missing_capabilities(self.needs.into_iter().flatten(), capabilities)
    }
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

    fn pin(request: InputRequest) -> Pin {
        Question::new(request).unwrap().pin()
    }

    fn text(question: &Question) -> String {
        question.write("key", ObjectWriter::with_capacity(0)).end().into()
    }

    fn expected(request: &InputRequest) -> String {
        serde_json::to_string(&std::collections::BTreeMap::from([("key", request)])).unwrap()
    }

    #[test]
    fn an_answer_is_bound_to_what_is_read() {
        assert_eq!(pin(form("a")), pin(form("a")));
        assert_ne!(pin(form("a")), pin(form("b")));
        assert_eq!(pin(url("https://a.example/x?t=1")), pin(url("https://a.example/x?t=2#f")));
        assert_ne!(pin(url("https://a.example/x")), pin(url("https://b.example/x")));
        assert!(Question::new(url("javascript:alert(1)")).is_err());
    }

    #[test]
    fn a_question_is_written_as_its_request() {
        for request in [form("\"a\""), url("https://a.example/x?t=1"), InputRequest::Roots] {
            let question = Question::new(request.clone()).unwrap();
            assert_eq!(text(&question), expected(&request));
            assert!(question.length() >= text(&question).len() - 8);
        }
        let fields = Form::new(FormSchema::new([Field::text("a")])).unwrap();
        let typed = Question::form("a".to_owned(), Arc::new(fields));
        assert_eq!((typed.pin(), text(&typed)), (pin(form("a")), expected(&form("a"))));
        assert_eq!(typed.needs, Question::new(form("a")).unwrap().needs);
        let other = Form::new(FormSchema::new([Field::text("b")])).unwrap();
        assert_ne!(Question::form("a".to_owned(), Arc::new(other)).pin(), typed.pin());
    }

    #[test]
    fn the_reason_is_read_and_changes_nothing_else() {
        let question = Question::new(form("Name?")).unwrap();
        let again = question.again("it is too long");
        assert_eq!(again.pin(), question.pin());
        let message = "Name?\n(The last answer did not fit: it is too long)";
        assert_eq!(text(&again), expected(&form(message)));
        let page = Question::new(url("https://a.example/")).unwrap();
        assert_eq!(text(&page.again("x")), text(&page));
    }
}
