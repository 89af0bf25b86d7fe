//! The argument of a step's closure.

use std::fmt;
use std::fmt::Write as _;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mrtr_codec::Digest;

use super::round::Round;
use super::step_scope::{self, StepName};

/// The argument of a step's closure: its idempotency key, and retries.
///
/// ```
/// # use mrtr_server::{Context, Result, Step};
/// # async fn charge(euros: u64, key: &str) -> Result<String> { Ok(format!("{euros} {key}")) }
/// async fn pay(cx: &Context, euros: u64) -> Result<String> {
///     cx.step("pay", async move |step: Step| charge(euros, step.idempotency_key()).await).await
/// }
/// ```
pub struct Step {
    round: Arc<Round>,
    key: Arc<str>,
    inputs: Option<Digest>,
    /// Computed at first use.
    idempotency_key: OnceLock<String>,
}

impl Step {
    pub(super) fn new(round: &Arc<Round>, key: &Arc<str>, inputs: Option<Digest>) -> Self {
        let (round, key) = (Arc::clone(round), Arc::clone(key));
        Self { round, key, inputs, idempotency_key: OnceLock::new() }
    }

    pub(super) fn name(&self) -> StepName {
        step_scope::name(&*self.round, &self.key)
    }

    /// Returns a key for external systems, so that they perform the operation once even if the step
    /// runs several times: 32 hexadecimal digits.
    ///
    /// The key is the same for the same step of the same call, given the same answers. If the step
    /// is [`idempotent_on`](crate::StepFuture::idempotent_on) inputs, it depends on those instead
    /// of the answers.
    ///
    /// Within one HTTP or stdio request, a step runs at most once. A client that lost a response
    /// repeats the request, and only the external system can know that the operation was performed.
    /// The key does not cover these cases:
    ///
    /// - A *first* request that is sent twice starts two calls with two keys, unless the step runs
    ///   [`after_checkpoint`](crate::StepFuture::after_checkpoint).
    /// - A client that goes back to an older state and answers differently gets another key,
    ///   because it requests another operation.
    /// - A client that lost a response repeats the request with a token that lacks a scope before
    ///   the step. If a question beside it is answered first, the key changes.
    ///
    /// The key also changes if a failed step runs again after another question was answered: a
    /// declined card and the next card are two payments. If it is the same operation, name its
    /// inputs with [`idempotent_on`](crate::StepFuture::idempotent_on).
    ///
    /// ```
    /// # use mrtr_server::{Context, Result};
    /// # async fn post(path: &str, idempotency_key: &str) -> Result<u32> { Ok(4) }
    /// async fn hold(cx: &Context) -> Result<u32> {
    ///     // Every run of this step in this call sends the same `Idempotency-Key`.
    ///     cx.step("hold", async |step| post("/tables/hold", step.idempotency_key()).await).await
    /// }
    /// ```
    pub fn idempotency_key(&self) -> &str {
        self.idempotency_key.get_or_init(|| idempotency_key(&self.round, &self.key, self.inputs))
    }

    /// Runs `operation` until it succeeds, at most `attempts` times (0 counts as 1).
    ///
    /// The pause after the first attempt is 100 ms. It doubles with each attempt, up to 10 s, and
    /// is shortened at random by up to half, so that many clients do not retry at the same time.
    /// All attempts share the [idempotency key](Self::idempotency_key), and the
    /// [timeout](crate::StepFuture::timeout) of the step.
    ///
    /// ```
    /// # use mrtr_server::{Context, Result};
    /// # async fn transfer(idempotency_key: &str) -> Result<String> { Ok("receipt".to_owned()) }
    /// async fn pay(cx: &Context) -> Result<String> {
    ///     cx.step("transfer", async |step| {
    ///         step.retry(3, || transfer(step.idempotency_key())).await
    ///     })
    ///     .await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the last attempt.
    pub async fn retry<T, E, Fut>(
        &self,
        attempts: u32,
        mut operation: impl FnMut() -> Fut,
    ) -> Result<T, E>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        let mut pause = MIN_RETRY_PAUSE;
        for _ in 1..attempts {
            if let Ok(output) = operation().await {
                return Ok(output);
            }
            tokio::time::sleep(pause.mul_f64(1.0 - random_fraction() / 2.0)).await;
            pause = MAX_RETRY_PAUSE.min(pause * 2);
        }
        operation().await
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Returns a random number from 0 to 1; 0 if the operating system has no random numbers.
fn random_fraction() -> f64 {
    getrandom::u32().map_or(0.0, |random| f64::from(random) / f64::from(u32::MAX))
}

/// The pauses before the second attempt of [`Step::retry`], and between later ones.
const MIN_RETRY_PAUSE: Duration = Duration::from_millis(100);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(10);

fn idempotency_key(round: &Round, key: &str, inputs: Option<Digest>) -> String {
    // The identity was drawn when the step began.
    let call = round.id().unwrap_or_default();
    let digest = match inputs {
        None => Digest::from_parts(&[
            b"idempotency key",
            &call,
            key.as_bytes(),
            round.answers_digest().as_bytes(),
        ]),
        Some(inputs) => Digest::from_parts(&[
            b"idempotency key of inputs",
            &call,
            key.as_bytes(),
            inputs.as_bytes(),
        ]),
    };
    let (half, _) = digest.as_bytes().split_at(16);
    hex(half)
}

/// Formats bytes as lowercase hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}
