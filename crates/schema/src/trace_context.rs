//! The trace context of a request.

use crate::Object;
use crate::setters::setters;

/// Maximum length of `tracestate` in bytes: the length that W3C Trace Context requires
/// implementations to propagate.
const MAX_TRACESTATE: usize = 512;

/// Maximum length of `baggage` in bytes, as required by W3C Baggage.
const MAX_BAGGAGE: usize = 8192;

/// The trace that a request belongs to, in the form of W3C Trace Context (specification: basic,
/// "OpenTelemetry trace context").
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceContext {
    /// `traceparent`
    pub traceparent: String,
    /// `tracestate`
    pub tracestate: Option<String>,
    /// `baggage`
    pub baggage: Option<String>,
}

setters!(TraceContext { with_tracestate(tracestate: String), with_baggage(baggage: String) });

impl TraceContext {
    /// Creates a trace context from a `traceparent`.
    pub fn new(traceparent: impl Into<String>) -> Self {
        Self { traceparent: traceparent.into(), tracestate: None, baggage: None }
    }

    /// Reads the trace context from the `_meta` of a request. Returns `None` if it is absent or
    /// malformed.
    #[must_use]
    pub fn from_meta(meta: &Object) -> Option<Self> {
        let text = |name| meta.get(name).and_then(|value| value.as_str()).map(str::to_owned);
        let context = Self {
            traceparent: text("traceparent")?,
            tracestate: text("tracestate"),
            baggage: text("baggage"),
        };
        context.is_valid().then_some(context)
    }

    /// Returns the members for the `_meta` of a request, or `None` if the context is malformed.
    #[must_use]
    pub fn to_meta(&self) -> Option<Object> {
        let members = [
            ("traceparent", Some(&self.traceparent)),
            ("tracestate", self.tracestate.as_ref()),
            ("baggage", self.baggage.as_ref()),
        ];
        let members = members
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.clone().into())));
        self.is_valid().then(|| members.collect())
    }

    /// Checks the form of `traceparent`, but only the characters and lengths of the other two.
    fn is_valid(&self) -> bool {
        let mut parts = self.traceparent.split('-');
        let lengths = [("version", 2), ("trace-id", 32), ("parent-id", 16), ("flags", 2)];
        let is_hex = |part: &str| part.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        let is_traceparent = lengths.iter().all(|(name, length)| {
            let is_id = name.ends_with("id");
            parts.next().is_some_and(|part| {
                part.len() == *length && is_hex(part) && !(is_id && part.bytes().all(|c| c == b'0'))
            })
        });
        let is_printable = |text: &String| text.bytes().all(|c| matches!(c, b' '..=b'~'));
        let is_rest_valid = self.tracestate.iter().chain(&self.baggage).all(is_printable)
            && self.tracestate.as_ref().is_none_or(|state| state.len() <= MAX_TRACESTATE)
            && self.baggage.as_ref().is_none_or(|baggage| baggage.len() <= MAX_BAGGAGE);
        is_traceparent
            && is_rest_valid
            && parts.next().is_none()
            && !self.traceparent.starts_with("ff")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_context_that_is_malformed_is_neither_written_nor_read() {
        let good = TraceContext::new("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01");
        assert_eq!(TraceContext::from_meta(&good.to_meta().unwrap()), Some(good.clone()));
        for wrong in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7",
            "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01-",
            "00-0AF7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
            "00-0af7651916cd43dd8448eb211c80319-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::new(wrong).to_meta(), None, "{wrong}");
            let meta = Object::from_iter([("traceparent".to_owned(), wrong.into())]);
            assert_eq!(TraceContext::from_meta(&meta), None, "{wrong}");
        }
        let long = TraceContext { baggage: Some("a".repeat(MAX_BAGGAGE + 1)), ..good.clone() };
        assert_eq!(long.to_meta(), None);
        let state = TraceContext { tracestate: Some("a=\u{e9}".to_owned()), ..good };
        assert_eq!(state.to_meta(), None);
        assert_eq!(TraceContext::from_meta(&Object::new()), None);
    }
}
