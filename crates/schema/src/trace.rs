//! Which trace a request belongs to.

use crate::Object;

/// How many bytes of these are passed on: as many as W3C asks everybody to.
const TRACESTATE: usize = 512;
const BAGGAGE: usize = 8192;

/// The trace that a request belongs to, as W3C Trace Context has it (specification: base protocol, "OpenTelemetry trace context").
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// `traceparent`
    pub traceparent: String,
    /// `tracestate`
    pub tracestate: Option<String>,
    /// `baggage`
    pub baggage: Option<String>,
}

impl TraceContext {
    /// What a request's `_meta` says; `None` if it says nothing, or not in the form that W3C Trace Context gives it.
    #[must_use]
    pub fn from_meta(meta: &Object) -> Option<Self> {
        let text = |name| meta.get(name).and_then(|value| value.as_str()).map(str::to_owned);
        let traceparent = text("traceparent")?;
        let (tracestate, baggage) = (text("tracestate"), text("baggage"));
        let context = Self { traceparent, tracestate, baggage };
        context.is_valid().then_some(context)
    }

    /// As `_meta` has it; `None` if it has another form than W3C Trace Context gives it.
    #[must_use]
    pub fn to_meta(&self) -> Option<Object> {
        let given = [
            ("traceparent", Some(&self.traceparent)),
            ("tracestate", self.tracestate.as_ref()),
            ("baggage", self.baggage.as_ref()),
        ];
        let given = given
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.clone().into())));
        self.is_valid().then(|| given.collect())
    }

    /// `tracestate` and `baggage` are looked at for their characters and lengths only.
    fn is_valid(&self) -> bool {
        let mut parts = self.traceparent.split('-');
        let lengths = [("version", 2), ("trace-id", 32), ("parent-id", 16), ("flags", 2)];
        let is_hex = |part: &str| part.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        let fits = lengths.iter().all(|(name, length)| {
            let is_id = name.ends_with("id");
            parts.next().is_some_and(|part| {
                part.len() == *length && is_hex(part) && !(is_id && part.bytes().all(|c| c == b'0'))
            })
        });
        let printable = |text: &String| text.bytes().all(|c| matches!(c, b' '..=b'~'));
        let rest = self.tracestate.iter().chain(&self.baggage).all(printable)
            && self.tracestate.as_ref().is_none_or(|state| state.len() <= TRACESTATE)
            && self.baggage.as_ref().is_none_or(|baggage| baggage.len() <= BAGGAGE);
        fits && rest && parts.next().is_none() && !self.traceparent.starts_with("ff")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_a_trace_context_is_sent_or_read() {
        let of = |traceparent: &str| TraceContext {
            traceparent: traceparent.to_owned(),
            ..TraceContext::default()
        };
        let good = of("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01");
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
            assert_eq!(of(wrong).to_meta(), None, "{wrong}");
            let meta = Object::from_iter([("traceparent".to_owned(), wrong.into())]);
            assert_eq!(TraceContext::from_meta(&meta), None, "{wrong}");
        }
        let long = TraceContext { baggage: Some("a".repeat(BAGGAGE + 1)), ..good.clone() };
        assert_eq!(long.to_meta(), None);
        let state = TraceContext { tracestate: Some("a=\u{e9}".to_owned()), ..good };
        assert_eq!(state.to_meta(), None);
        assert_eq!(TraceContext::from_meta(&Object::new()), None);
    }
}
