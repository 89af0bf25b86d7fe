//! The kinds of questions, and the client capabilities that they need.

use mrtr_schema::Object;
use mrtr_schema::capabilities::{
    ClientCapabilities, ElicitationCapability, RootsCapability, SamplingCapability,
};
use mrtr_schema::elicitation::ElicitParams;
use mrtr_schema::input::InputRequest;

/// A kind of question that a handler may ask, and that a client may support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClientFeature {
    /// A form for the user to fill in.
    Form,
    /// A URL for the user to visit.
    Url,
    /// A request to the client's language model. Deprecated in this revision.
    Sampling,
    /// A request to the language model with tools. Deprecated in this revision.
    SamplingTools,
    /// A request to the language model with the context of servers. Deprecated in this revision.
    SamplingContext,
    /// The client's roots. Deprecated in this revision.
    Roots,
}

impl ClientFeature {
    /// Returns true if a client with these capabilities supports the feature.
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

    /// Adds the capability that the feature needs to `required`.
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
            Self::Roots => required.roots = Some(RootsCapability::default()),
        }
    }

    /// Returns all features that a question needs.
    pub(crate) fn required_by(request: &InputRequest) -> [Option<Self>; 3] {
        match request {
            InputRequest::Elicit(ElicitParams::Form(_)) => [Some(Self::Form), None, None],
            InputRequest::Elicit(ElicitParams::Url(_)) => [Some(Self::Url), None, None],
            InputRequest::Sample(params) => {
                let tools = params.uses_tools().then_some(Self::SamplingTools);
                let context = params.uses_context().then_some(Self::SamplingContext);
                [Some(Self::Sampling), tools, context]
            }
            InputRequest::Roots => [Some(Self::Roots), None, None],
            _ => [None; 3],
        }
    }
}

/// Returns the capabilities that `features` need and the client lacks, if any.
pub(crate) fn missing_capabilities(
    features: impl IntoIterator<Item = ClientFeature>,
    capabilities: &ClientCapabilities,
) -> Option<ClientCapabilities> {
    let mut required = None;
    for feature in features.into_iter().filter(|feature| !feature.supported(capabilities)) {
        feature.require(required.get_or_insert_default());
    }
    required
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn missing_capabilities_names_only_what_is_missing() {
        let text = |features: &[ClientFeature], declared: &str| {
            let declared = serde_json::from_str(declared).unwrap();
            missing_capabilities(features.iter().copied(), &declared)
                .map(|m| serde_json::to_string(&m).unwrap())
        };
        assert_eq!(text(&[ClientFeature::Form], r#"{"elicitation":{}}"#), None);
        assert_eq!(
            text(&[ClientFeature::Form, ClientFeature::Url], r#"{"elicitation":{}}"#).unwrap(),
            r#"{"elicitation":{"url":{}}}"#
        );
        assert_eq!(
            text(&[ClientFeature::Form, ClientFeature::Sampling], "{}").unwrap(),
            r#"{"elicitation":{"form":{}},"sampling":{}}"#
        );
        assert_eq!(
            text(&[ClientFeature::SamplingTools], r#"{"sampling":{}}"#).unwrap(),
            r#"{"sampling":{"tools":{}}}"#
        );
        assert_eq!(text(&[ClientFeature::Roots], "{}").unwrap(), r#"{"roots":{}}"#);
    }
}
