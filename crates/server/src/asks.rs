//! Kinds of questions: which capability each needs, and what of it an answer is bound to.

use mrtr_schema::Object;
use mrtr_schema::capabilities::{
    ClientCapabilities, ElicitationCapability, RootsCapability, SamplingCapability,
};
use mrtr_schema::elicitation::ElicitParams;
use mrtr_schema::input::InputRequest;

/// A kind of question that a tool or prompt may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Asks {
    /// A form for the person.
    Form,
    /// A URL for the person to visit.
    Url,
    /// A language model. Deprecated in this revision.
    Sampling,
    /// A language model with tools. Deprecated in this revision.
    SamplingTools,
    /// A language model that sees the context of servers. Deprecated in this revision.
    SamplingContext,
    /// The client's roots. Deprecated in this revision.
    Roots,
}

impl Asks {
    /// Whether a client with these capabilities can be asked.
    pub(crate) fn supported(self, capabilities: &ClientCapabilities) -> bool {
        match self {
            Self::Form => capabilities.has_form(),
            Self::Url => capabilities.has_url(),
            Self::Sampling => capabilities.has_sampling(),
            Self::SamplingTools => capabilities.has_sampling_tools(),
            Self::SamplingContext => capabilities.has_sampling_context(),
            Self::Roots => capabilities.has_roots(),
        }
    }

    /// Adds what a client needs to `required`.
    pub(crate) fn require(self, required: &mut ClientCapabilities) {
        fn elicitation(required: &mut ClientCapabilities) -> &mut ElicitationCapability {
            required.elicitation.get_or_insert_default()
        }
        match self {
            Self::Form => elicitation(required).form = Some(Object::new()),
            Self::Url => elicitation(required).url = Some(Object::new()),
            Self::Sampling => drop(required.sampling.get_or_insert_default()),
            Self::SamplingTools => {
                let tools = Some(Object::new());
                required.sampling.get_or_insert(SamplingCapability::default()).tools = tools;
            }
            Self::SamplingContext => {
                let context = Some(Object::new());
                required.sampling.get_or_insert(SamplingCapability::default()).context = context;
            }
            Self::Roots => required.roots = Some(RootsCapability {}),
        }
    }

    /// What this question needs, all of it.
    fn of(request: &InputRequest) -> impl Iterator<Item = Self> {
        let (one, tools, context) = match request {
            InputRequest::Elicit(ElicitParams::Form(_)) => (Some(Self::Form), false, false),
            InputRequest::Elicit(ElicitParams::Url(_)) => (Some(Self::Url), false, false),
            InputRequest::Sample(params) => {
                (Some(Self::Sampling), params.uses_tools(), params.uses_context())
            }
            InputRequest::Roots => (Some(Self::Roots), false, false),
            _ => (None, false, false),
        };
        let tools = tools.then_some(Self::SamplingTools);
        one.into_iter().chain(tools).chain(context.then_some(Self::SamplingContext))
    }
}

/// What the client lacks to be asked this, if it lacks anything.
pub(crate) fn missing(
    request: &InputRequest,
    capabilities: &ClientCapabilities,
) -> Option<ClientCapabilities> {
    missing_of(Asks::of(request), capabilities)
}

/// What the client lacks to be asked all these.
pub(crate) fn missing_of(
    asks: impl IntoIterator<Item = Asks>,
    capabilities: &ClientCapabilities,
) -> Option<ClientCapabilities> {
    let mut required = None;
    for kind in asks.into_iter().filter(|kind| !kind.supported(capabilities)) {
        kind.require(required.get_or_insert_default());
    }
    required
}

/// What of a question its answer is bound to: all that a person or model reads, and for a URL all but
/// its query, where one-time tokens tend to be.
pub(crate) fn pinned(request: &InputRequest) -> Vec<u8> {
    let mut request = request.clone();
    if let InputRequest::Elicit(ElicitParams::Url(params)) = &mut request {
        let end = params.url.find(['?', '#']).unwrap_or(params.url.len());
        params.url.truncate(end);
    }
    // Requests are plain data, so this cannot fail; nothing would match nothing.
    serde_json::to_vec(&request).unwrap_or_default()
}

/// Says why a question is asked again.
pub(crate) fn add_reason(request: &mut InputRequest, reason: &str) {
    if let InputRequest::Elicit(ElicitParams::Form(form)) = request {
        form.message = format!("{}\n(The last answer did not fit: {reason})", form.message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mrtr_schema::elicitation::{FormParams, UrlParams};
    use mrtr_schema::form::{Field, FormSchema};

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

    #[test]
    fn an_answer_is_bound_to_what_is_read() {
        assert_eq!(pinned(&form("a")), pinned(&form("a")));
        assert_ne!(pinned(&form("a")), pinned(&form("b")));
        assert_eq!(
            pinned(&url("https://a.example/x?t=1")),
            pinned(&url("https://a.example/x?t=2#f"))
        );
        assert_ne!(pinned(&url("https://a.example/x")), pinned(&url("https://b.example/x")));
    }

    #[test]
    fn what_is_missing_is_named_and_nothing_else() {
        let text = |asks: &[Asks], has: &str| {
            let has = serde_json::from_str(has).unwrap();
            missing_of(asks.iter().copied(), &has).map(|m| serde_json::to_string(&m).unwrap())
        };
        assert_eq!(text(&[Asks::Form], r#"{"elicitation":{}}"#), None);
        assert_eq!(
            text(&[Asks::Form, Asks::Url], r#"{"elicitation":{}}"#).unwrap(),
            r#"{"elicitation":{"url":{}}}"#
        );
        assert_eq!(
            text(&[Asks::Form, Asks::Sampling], "{}").unwrap(),
            r#"{"elicitation":{"form":{}},"sampling":{}}"#
        );
        assert_eq!(
            text(&[Asks::SamplingTools], r#"{"sampling":{}}"#).unwrap(),
            r#"{"sampling":{"tools":{}}}"#
        );
        assert_eq!(text(&[Asks::Roots], "{}").unwrap(), r#"{"roots":{}}"#);
    }
}
