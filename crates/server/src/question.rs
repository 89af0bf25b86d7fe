//! Questions as they are sent to the client, and the digests that tie answers to them.

use std::sync::Arc;

use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::elicitation::{ElicitParams, FormParams};
use mrtr_schema::input::InputRequest;
use mrtr_schema::json::{ObjectWriter, RawJson};
use mrtr_schema::method;

use crate::client_feature::{ClientFeature, missing_capabilities};
use crate::form::Form;
use crate::rounds::QuestionDigest;

/// A valid question.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    content: QuestionContent,
    digest: QuestionDigest,
    required: [Option<ClientFeature>; 3],
}

/// The request of a question. It is only written as JSON when it is sent: in later rounds, the
/// question has its answer.
#[derive(Debug, Clone)]
enum QuestionContent {
    /// A form and the message above it.
    Form(String, Arc<Form>),
    /// Any other request, as JSON.
    Other(RawJson),
}

impl Question {
    /// Creates a question from a request.
    ///
    /// # Errors
    ///
    /// The reason why the request is invalid.
    pub(crate) fn new(request: InputRequest) -> Result<Self, String> {
        request.validate()?;
        let written = |request| RawJson::new(request).map_err(|error| error.to_string());
        let required = ClientFeature::required_by(&request);
        let (text, read) = match request {
            InputRequest::Elicit(ElicitParams::Form(FormParams {
                message,
                requested_schema,
                ..
            })) => {
                return Ok(Self::form(message, Arc::new(Form::new(requested_schema)?)));
            }
            // The query and the fragment are not part of the digest: they tend to hold one-time
            // tokens.
            InputRequest::Elicit(ElicitParams::Url(ref params)) => {
                let mut params = params.clone();
                params.url.truncate(params.url.find(['?', '#']).unwrap_or(params.url.len()));
                let read = InputRequest::Elicit(ElicitParams::Url(params));
                (written(&request)?, Some(written(&read)?))
            }
            other => (written(&other)?, None),
        };
        let digest = QuestionDigest::new(&[read.as_ref().unwrap_or(&text).as_str().as_bytes()]);
        Ok(Self { content: QuestionContent::Other(text), digest, required })
    }

    /// Creates an elicitation in form mode.
    pub(crate) fn form(message: String, form: Arc<Form>) -> Self {
        let digest = QuestionDigest::new(&[b"form", form.digest.as_bytes(), message.as_bytes()]);
        Self {
            content: QuestionContent::Form(message, form),
            digest,
            required: [Some(ClientFeature::Form), None, None],
        }
    }

    /// Returns the question with the reason why its previous answer was rejected. Only a form has a
    /// place for it. The digest stays the same.
    pub(crate) fn with_rejection(&self, reason: &str) -> Self {
        let mut again = self.clone();
        if let QuestionContent::Form(message, _) = &mut again.content {
            *message = format!("{message}\n(The last answer did not fit: {reason})");
        }
        again
    }

    /// Writes the request as the member `key`.
    pub(crate) fn write(&self, key: &str, into: ObjectWriter) -> ObjectWriter {
        let (message, form) = match &self.content {
            QuestionContent::Form(message, form) => (message, form),
            QuestionContent::Other(text) => return into.raw(key, text),
        };
        // The JSON of `InputRequest`, with a schema that is serialized once per form.
        into.object(key, |request| {
            request.string("method", method::ELICITATION_CREATE).object("params", |params| {
                let params = params.string("mode", "form").string("message", message);
                params.raw("requestedSchema", &form.text)
            })
        })
    }

    /// Returns the approximate length of the request's JSON in bytes.
    pub(crate) fn size_hint(&self) -> usize {
        match &self.content {
            // 100 bytes for the other members of the request.
            QuestionContent::Form(message, form) => 100 + message.len() + form.text.as_str().len(),
            QuestionContent::Other(text) => text.as_str().len(),
        }
    }

    /// Returns the digest of its visible text and fields.
    pub(crate) fn digest(&self) -> QuestionDigest {
        self.digest
    }

    /// Returns the capabilities that the client needs for this question and lacks, if any.
    pub(crate) fn missing_capabilities(
        &self,
        capabilities: &ClientCapabilities,
    ) -> Option<ClientCapabilities> {
        missing_capabilities(self.required.into_iter().flatten(), capabilities)
    }
}

#[cfg(test)]
mod tests {
    use mrtr_schema::elicitation::UrlParams;
    use mrtr_schema::form::{Field, FormSchema};

    use super::*;

    fn form(message: &str) -> InputRequest {
        let requested_schema = FormSchema::new([Field::text("a")]);
        InputRequest::Elicit(FormParams::new(message, requested_schema).into())
    }

    fn url(url: &str) -> InputRequest {
        InputRequest::Elicit(UrlParams::new("m", url).into())
    }

    fn digest(request: InputRequest) -> QuestionDigest {
        Question::new(request).unwrap().digest()
    }

    fn text(question: &Question) -> String {
        question.write("key", ObjectWriter::with_capacity(0)).end().into()
    }

    fn expected(request: &InputRequest) -> String {
        serde_json::to_string(&std::collections::BTreeMap::from([("key", request)])).unwrap()
    }

    #[test]
    fn digest_covers_the_visible_text_but_not_the_query_of_a_url() {
        assert_eq!(digest(form("a")), digest(form("a")));
        assert_ne!(digest(form("a")), digest(form("b")));
        assert_eq!(
            digest(url("https://a.example/x?t=1")),
            digest(url("https://a.example/x?t=2#f"))
        );
        assert_ne!(digest(url("https://a.example/x")), digest(url("https://b.example/x")));
        assert!(Question::new(url("javascript:alert(1)")).is_err());
    }

    #[test]
    fn questions_are_written_like_their_requests() {
        for request in [form("\"a\""), url("https://a.example/x?t=1"), InputRequest::Roots] {
            let question = Question::new(request.clone()).unwrap();
            assert_eq!(text(&question), expected(&request));
            assert!(question.size_hint() >= text(&question).len() - 8);
        }
        let fields = Form::new(FormSchema::new([Field::text("a")])).unwrap();
        let typed = Question::form("a".to_owned(), Arc::new(fields));
        assert_eq!((typed.digest(), text(&typed)), (digest(form("a")), expected(&form("a"))));
        assert_eq!(typed.required, Question::new(form("a")).unwrap().required);
        let other = Form::new(FormSchema::new([Field::text("b")])).unwrap();
        assert_ne!(Question::form("a".to_owned(), Arc::new(other)).digest(), typed.digest());
    }

    #[test]
    fn rejection_reason_is_shown_in_forms_and_leaves_the_digest_unchanged() {
        let question = Question::new(form("Name?")).unwrap();
        let again = question.with_rejection("it is too long");
        assert_eq!(again.digest(), question.digest());
        let message = "Name?\n(The last answer did not fit: it is too long)";
        assert_eq!(text(&again), expected(&form(message)));
        let page = Question::new(url("https://a.example/")).unwrap();
        assert_eq!(text(&page.with_rejection("x")), text(&page));
    }
}
