//! The view of a task: what its caller may see.

use std::sync::Arc;

use mrtr_codec::encoding::{DecodeError, Decoder, Encoder};
use mrtr_schema::input::InputRequests;
use mrtr_schema::json::{ObjectWriter, RawJson};
use mrtr_schema::jsonrpc::ErrorObject;

use crate::rounds::{OpenInput, PendingInputs, QuestionDigest};

/// The version of the binary format.
const FORMAT: u8 = 2;

/// What the caller of a task may see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// The questions that are open, unless an answer has arrived since.
    pub(crate) questions: Vec<OpenQuestion>,
    /// All keys that clients have seen: each means one question for ever.
    used_keys: Vec<String>,
    /// The number of entries that the journal had at the end of the last run.
    pub(crate) entries: u64,
    /// The number of earlier runs that have ended without any progress, by the death of their
    /// replica or by the loss of their lease.
    pub(crate) failed_runs: u64,
    /// The number of entries that the journal had at the start of the last of them.
    pub(crate) failed_at: u64,
    /// The epoch in which the handler began anew, in a version that cannot continue the journal of
    /// an earlier one. Earlier answers do not count.
    pub(crate) restarted: Option<u32>,
    /// The progress that the handler has reported.
    pub(crate) message: Option<String>,
    pub(crate) outcome: Option<ViewOutcome>,
}

/// The end of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ViewOutcome {
    /// The result, as JSON.
    Result(String),
    /// The JSON-RPC error, as JSON.
    Error(String),
}

/// An open question of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenQuestion {
    /// The key that clients see.
    pub(crate) wire_key: String,
    /// The handler's key.
    pub(crate) key: Arc<str>,
    digest: QuestionDigest,
    /// The request as the only member, under `wire_key`, of a JSON object.
    request: String,
}

impl View {
    /// Replaces the open questions. `is_answered` tells if a question of the previous ones, by its
    /// wire key, was answered.
    ///
    /// A question that is open as it was keeps its wire key and its text: an answer to it may be on
    /// its way. A question that is asked again gets another key: in a task, a key must not be
    /// reused.
    pub(crate) fn ask(&mut self, open: &[OpenInput], is_answered: impl Fn(&str) -> bool) {
        let previous = std::mem::take(&mut self.questions);
        for OpenInput { key, question } in open {
            let digest = question.digest();
            let request = |wire_key: &str| {
                let writer = ObjectWriter::with_capacity(question.size_hint() + 16);
                String::from(question.write(wire_key, writer).end())
            };
            let same = previous.iter().find(|before| {
                before.key == *key && !is_answered(&before.wire_key) && before.digest == digest
            });
            let question = same.cloned().unwrap_or_else(|| {
                let wire_key = self.unused_key(key);
                let request = request(&wire_key);
                OpenQuestion { wire_key, key: Arc::clone(key), digest, request }
            });
            self.questions.push(question);
        }
    }

    /// Returns a key that no client has seen: the handler's own, or that with a number.
    fn unused_key(&mut self, key: &str) -> String {
        let is_unused = |candidate: &String| !self.used_keys.contains(candidate);
        let numbered = (2_u64..).map(|n| format!("{key}~{n}"));
        let candidate = std::iter::once(key.to_owned()).chain(numbered).find(is_unused);
        let candidate = candidate.unwrap_or_default();
        self.used_keys.push(candidate.clone());
        candidate
    }

    /// Returns the open questions by the handler's keys.
    pub(crate) fn pending(&self) -> PendingInputs {
        self.questions.iter().map(|open| (Arc::clone(&open.key), open.digest)).collect()
    }

    /// Returns the requests that have no answer yet.
    pub(crate) fn outstanding(
        &self,
        answered: &[String],
    ) -> Result<InputRequests, serde_json::Error> {
        let mut all = Vec::new();
        for question in &self.questions {
            if !answered.contains(&question.wire_key) {
                let InputRequests(one) = serde_json::from_str(&question.request)?;
                all.extend(one);
            }
        }
        Ok(InputRequests(all))
    }

    /// Starts the task over: no question is open, and the journal is empty.
    pub(crate) fn restart(&mut self, epoch: u32) {
        self.questions.clear();
        self.entries = 0;
        self.restarted = Some(epoch);
    }

    /// Ends the task: nothing is open any more.
    pub(crate) fn end(&mut self, outcome: Option<ViewOutcome>) {
        self.questions.clear();
        self.used_keys.clear();
        self.outcome = outcome;
    }

    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut out = Encoder::new();
        out.byte(FORMAT).number(self.questions.len() as u64);
        for OpenQuestion { wire_key, key, digest, request } in &self.questions {
            out.bytes(wire_key.as_bytes()).bytes(key.as_bytes()).raw(&digest.0);
            out.bytes(request.as_bytes());
        }
        out.number(self.used_keys.len() as u64);
        for key in &self.used_keys {
            out.bytes(key.as_bytes());
        }
        out.number(self.entries).number(self.failed_runs);
        out.number(self.failed_at);
        out.number(self.restarted.map_or(0, |epoch| u64::from(epoch) + 1));
        out.option(self.message.as_deref().map(str::as_bytes));
        match &self.outcome {
            None => out.byte(0),
            Some(ViewOutcome::Result(json)) => out.byte(1).bytes(json.as_bytes()),
            Some(ViewOutcome::Error(json)) => out.byte(2).bytes(json.as_bytes()),
        };
        out.finish()
    }

    pub(crate) fn unpack(packed: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder::new(packed);
        if input.byte()? != FORMAT {
            return Err(DecodeError);
        }
        let mut view = Self::default();
        for _ in 0..input.number()? {
            view.questions.push(OpenQuestion {
                wire_key: input.text()?.to_owned(),
                key: input.text()?.into(),
                digest: QuestionDigest(input.array()?),
                request: input.text()?.to_owned(),
            });
        }
        for _ in 0..input.number()? {
            view.used_keys.push(input.text()?.to_owned());
        }
        view.entries = input.number()?;
        view.failed_runs = input.number()?;
        view.failed_at = input.number()?;
        let restarted = input.number()?.checked_sub(1).map(u32::try_from);
        view.restarted = restarted.transpose().map_err(|_| DecodeError)?;
        view.message = input.optional_text()?.map(str::to_owned);
        view.outcome = match input.byte()? {
            0 => None,
            1 => Some(ViewOutcome::Result(input.text()?.to_owned())),
            2 => Some(ViewOutcome::Error(input.text()?.to_owned())),
            _ => return Err(DecodeError),
        };
        input.end()?;
        Ok(view)
    }
}

impl ViewOutcome {
    pub(crate) fn new(outcome: Result<RawJson, ErrorObject>) -> Self {
        match outcome {
            Ok(result) => Self::Result(result.into()),
            Err(error) => Self::Error(serde_json::to_string(&error).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use mrtr_schema::elicitation::FormParams;
    use mrtr_schema::form::{Field, FormSchema};
    use mrtr_schema::input::InputRequest;

    use super::*;
    use crate::question::Question;

    fn ask(key: &str, message: &str) -> OpenInput {
        let form = FormParams::new(message, FormSchema::new([Field::text("name")]));
        let question = Question::new(InputRequest::Elicit(form.into())).unwrap();
        OpenInput { key: key.into(), question }
    }

    fn keys(view: &View) -> Vec<&str> {
        view.questions.iter().map(|open| &*open.wire_key).collect()
    }

    #[test]
    fn a_key_means_one_question_for_ever() {
        let mut view = View::default();
        view.ask(&[ask("a", "A?"), ask("b", "B?")], |_| false);
        assert_eq!(keys(&view), ["a", "b"]);
        // `a` was answered, and `b` is still open.
        view.ask(&[ask("b", "B?")], |key| key == "a");
        assert_eq!(keys(&view), ["b"]);
        // `a` is asked again, also with the same words; `b` reads differently.
        view.ask(&[ask("a", "A?"), ask("b", "B, please?")], |key| key == "a");
        assert_eq!(keys(&view), ["a~2", "b~2"]);
        // A key of the handler that looks like one of these.
        view.ask(&[ask("a~2", "Another?"), ask("a", "A?")], |_| false);
        assert_eq!(keys(&view), ["a~2~2", "a~2"]);
        assert!(view.pending().contains("a~2") && view.pending().contains("a"));

        let InputRequests(outstanding) = view.outstanding(&["a~2".to_owned()]).unwrap();
        assert_eq!(outstanding.len(), 1);
        assert_eq!(outstanding[0].0, "a~2~2");
    }

    #[test]
    fn unpack_reverses_pack_and_rejects_everything_else() {
        let mut view = View {
            entries: 3,
            failed_runs: 1,
            failed_at: 2,
            message: Some("1 of 2".into()),
            ..View::default()
        };
        view.ask(&[ask("a", "A?")], |_| false);
        let mut ended = view.clone();
        ended.end(Some(ViewOutcome::new(Err(ErrorObject::internal("Internal error")))));
        for view in [view, ended] {
            let packed = view.pack();
            assert_eq!(View::unpack(&packed).as_ref(), Ok(&view));
            for end in 0..packed.len() {
                assert!(View::unpack(&packed[..end]).is_err(), "cut to {end}");
            }
            assert!(View::unpack(&[&packed[..], b"x"].concat()).is_err());
        }
    }
}
