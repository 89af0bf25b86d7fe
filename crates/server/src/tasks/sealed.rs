//! The parts of a task as they are stored: sealed, and bound to the task and to their place.

use mrtr_codec::{
    Binding, Digest, OpenError, Principal, Seal, SealError, UnixSeconds, Validity, open, seal,
};

use super::store::TaskKey;

/// The longest body of one token, in bytes. A longer part is sealed as several tokens.
const CHUNK: usize = 64 * 1024;

/// The time at which parts are opened. They do not expire, and the clocks of replicas may differ:
/// it is later than any time of sealing.
const AT_ANY_TIME: UnixSeconds = UnixSeconds(u64::MAX - 1);

/// Separates the tokens of a part. It does not occur in tokens.
const SEPARATOR: u8 = b'\n';

/// A part of a task.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part<'a> {
    /// The call of this tool. Without the name, a row could be made to run another tool.
    Call(&'a str),
    /// What the caller may see. It opens for the same caller only.
    View(Option<&'a Principal>),
    /// The entry of the journal at this position.
    Entry(usize),
    /// The answer to a question.
    Answer(&'a str),
}

/// Seals and opens the parts of one task.
#[derive(Clone, Copy)]
pub(crate) struct TaskSeal<'a> {
    pub(crate) sealer: &'a dyn Seal,
    /// Names the server: a store may have tasks of several.
    pub(crate) service: &'a str,
    pub(crate) key: TaskKey,
}

impl TaskSeal<'_> {
    pub(crate) fn seal(&self, part: Part<'_>, body: &[u8]) -> Result<Vec<u8>, SealError> {
        let count = body.len().div_ceil(CHUNK).max(1);
        let validity = Validity { issued: UnixSeconds(0), expires: UnixSeconds(u64::MAX) };
        let mut sealed = Vec::new();
        for n in 0..count {
            let chunk = body.get(n * CHUNK..).unwrap_or_default();
            let chunk = chunk.get(..CHUNK).unwrap_or(chunk);
            let target = target(part, n, count);
            let token = seal(self.sealer, &self.binding(part, &target), validity, chunk)?;
            if n > 0 {
                sealed.push(SEPARATOR);
            }
            sealed.extend_from_slice(token.as_bytes());
        }
        Ok(sealed)
    }

    /// Reverses [`seal`](Self::seal).
    ///
    /// # Errors
    ///
    /// [`OpenError`], if the part is of another task, place or caller, or was changed.
    pub(crate) fn open(&self, part: Part<'_>, sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        let tokens: Vec<_> = sealed.split(|byte| *byte == SEPARATOR).collect();
        let mut body = Vec::with_capacity(sealed.len());
        for (n, token) in tokens.iter().enumerate() {
            let token = str::from_utf8(token).map_err(|_| OpenError::UnknownFormat)?;
            let target = target(part, n, tokens.len());
            let opened = open(self.sealer, token, &self.binding(part, &target), AT_ANY_TIME)?;
            body.extend_from_slice(opened.body());
        }
        Ok(body)
    }

    fn binding<'b>(&'b self, part: Part<'b>, target: &'b str) -> Binding<'b> {
        let principal = match part {
            Part::View(principal) => principal,
            _ => None,
        };
        // The digest is of the task instead of arguments: only its caller knows these.
        let arguments = Digest::from_bytes(self.key.0);
        // A task may outlive the key that its caller proves.
        Binding { principal, proof_key: None, method: self.service, target, arguments }
    }
}

fn target(part: Part<'_>, n: usize, count: usize) -> String {
    let chunk = format_args!("{n} of {count}");
    match part {
        Part::Call(tool) => format!("call {chunk} {tool}"),
        Part::View(_) => format!("view {chunk}"),
        Part::Entry(position) => format!("entry {position} {chunk}"),
        Part::Answer(question) => format!("answer {chunk} {question}"),
    }
}

#[cfg(test)]
mod tests {
    use mrtr_codec::KeyRing;

    use super::*;

    #[test]
    fn parts_open_at_their_place_only() {
        let ring = KeyRing::ephemeral().unwrap();
        let alice = Principal::new("https://login.example", "alice");
        let bob = Principal::new("https://login.example", "bob");
        let of = |id| TaskSeal { sealer: &ring, service: "tasks of test", key: TaskKey::of(id) };
        for length in [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let body: Vec<u8> = (0..length).map(|n| u8::try_from(n % 251).unwrap()).collect();
            for (part, other) in [
                (Part::Call("a"), Part::Call("b")),
                (Part::Call("a"), Part::Entry(0)),
                (Part::Entry(1), Part::Entry(2)),
                (Part::View(Some(&alice)), Part::View(Some(&bob))),
                (Part::View(Some(&alice)), Part::View(None)),
                (Part::Answer("a"), Part::Answer("b")),
            ] {
                let sealed = of("one").seal(part, &body).unwrap();
                assert_eq!(of("one").open(part, &sealed), Ok(body.clone()));
                assert!(of("one").open(other, &sealed).is_err(), "{part:?} as {other:?}");
                assert!(of("two").open(part, &sealed).is_err(), "{part:?} of another task");
                // A chunk cannot be cut off.
                if let Some(end) = sealed.iter().rposition(|byte| *byte == SEPARATOR) {
                    assert!(of("one").open(part, &sealed[..end]).is_err());
                }
            }
        }
    }

    /// Earlier commits sealed parts with the time of their replica.
    #[test]
    fn part_with_a_time_opens() {
        let ring = KeyRing::ephemeral().unwrap();
        let task = TaskSeal { sealer: &ring, service: "tasks of test", key: TaskKey::of("one") };
        let target = target(Part::Entry(0), 0, 1);
        let issued = UnixSeconds(1_800_000_000);
        let validity = Validity { issued, expires: UnixSeconds(u64::MAX) };
        let binding = task.binding(Part::Entry(0), &target);
        let sealed = seal(&ring, &binding, validity, b"a").unwrap();
        assert_eq!(task.open(Part::Entry(0), sealed.as_bytes()), Ok(b"a".to_vec()));
    }
}
