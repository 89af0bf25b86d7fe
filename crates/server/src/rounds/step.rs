//! Steps: side effects whose results are kept.

use std::fmt::Write as _;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use mrtr_codec::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::round::{Begun, Fault, Round};
use crate::error::Error;

/// What a step's closure is given.
#[derive(Debug)]
pub struct Step {
    idempotency_key: String,
}

impl Step {
    /// A key to hand to the outside world, so that it does the thing once however often the step runs:
    /// the same for the same step of the same flow, given the same answers.
    ///
    /// A step runs at most once per request received. A client that never got the response sends the
    /// request again, and then only the outside world can know that it was done before. Two things the
    /// key does not cover. A *first* request that is sent twice starts two flows with two keys. And a
    /// client that goes back and answers differently gets another key, because it asks for another thing.
    pub fn idempotency_key(&self) -> &str {
        &self.idempotency_key
    }
}

pub(crate) async fn step<T, F, Fut>(round: Arc<Round>, key: String, run: F) -> Result<T, Error>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(Step) -> Fut,
    Fut: Future<Output = Result<T, Error>>,
{
    match round.begin_step(&key) {
        Begun::Never => end_of(&round, &key).await,
        Begun::Recorded(value) => match serde_json::from_str(&value) {
            Ok(value) => Ok(value),
            Err(error) => {
                let why =
                    format!("the recorded result of step {key:?} is of another type: {error}");
                round.fail(Fault::Changed(why));
                end_of(&round, &key).await
            }
        },
        Begun::Run => {
            let mut running = Running { round: &round, key: &key, result: None };
            let result = run(Step { idempotency_key: idempotency_key(&round, &key) }).await?;
            match serde_json::to_string(&result) {
                Ok(value) => running.result = Some(value),
                Err(error) => {
                    let why = format!("the result of step {key:?} cannot be kept: {error}");
                    round.fail(Fault::Handler(why));
                }
            }
            Ok(result)
        }
    }
}

/// Waits for the end of the round: in the handler's own task it is dropped by then.
async fn end_of<T>(round: &Round, key: &str) -> Result<T, Error> {
    poll_fn(|cx| if round.is_closed(cx.waker()) { Poll::Ready(()) } else { Poll::Pending }).await;
    Err(Error::round_closed(key))
}

/// A step in flight. Dropping it ends the step, whether it came to a result or not.
struct Running<'a> {
    round: &'a Round,
    key: &'a str,
    result: Option<String>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.round.end_step(self.key, self.result.take());
    }
}

fn idempotency_key(round: &Round, key: &str) -> String {
    let (flow, Digest(known)) = (round.flow(), round.known());
    let Digest(digest) = Digest::of_parts(&[b"idempotency key", &flow.id, key.as_bytes(), &known]);
    digest.iter().take(16).fold(String::with_capacity(32), |mut out, byte| {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}
