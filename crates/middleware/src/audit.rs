//! An audit log of callers, requests and outcomes.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mrtr_schema::jsonrpc::{ErrorObject, code};
use mrtr_schema::{Object, method, uri};
use mrtr_server::Principal;
use mrtr_server::middleware::{Next, Request, Response, ResultType, from_fn};
use serde_json::Value;
use serde_json::value::RawValue;
use tower_layer::Layer;

/// A layer that records every request that reaches it, once per round, even if the request was
/// cancelled.
///
/// Arguments are left out, except for those that [`arguments`](Self::arguments) names: they may be
/// secret or personal. So is the query of a resource's URI. Answers, results and request states are
/// never recorded.
///
/// By default, records are log lines at the level INFO, with the target `mrtr::audit`.
///
/// ```
/// use mrtr_middleware::Audit;
/// use mrtr_server::{Context, Server, Tool};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Transfer {
///     to: String,
///     amount: u64,
///     note: String,
/// }
///
/// async fn transfer(_: Context, transfer: Transfer) -> String {
///     format!("{} to {}", transfer.amount, transfer.to)
/// }
///
/// let audit = Audit::new().arguments(["to", "amount"]);
/// let server = Server::builder("bank", "1.0.0")
///     .tool(Tool::new("transfer", "Transfers money", transfer).layer(audit))
///     .require_principal()
///     .ephemeral_key()
///     .build()?;
/// # Ok::<(), mrtr_server::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Audit {
    arguments: Arc<[String]>,
    sink: Arc<dyn Fn(&AuditRecord) + Send + Sync>,
}

/// The record of one request, created when it ends.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AuditRecord {
    /// The method, at most 256 characters of it.
    pub method: String,
    /// The name of the tool or prompt, or the URI of the resource, without its query and fragment:
    /// at most 256 characters, as the client sent them. `None` for other methods.
    ///
    /// Its path may have variables of a [template](mrtr_server::ResourceTemplate): put what is
    /// secret into the query.
    pub name: Option<String>,
    /// The authenticated caller. `None` for an anonymous one.
    pub principal: Option<Principal>,
    /// True if the request has no request state: it begins a call.
    pub is_first_round: bool,
    /// The [recorded arguments](Audit::arguments).
    pub arguments: Object,
    /// The end of the request.
    pub outcome: AuditOutcome,
    /// The time from the request to its end.
    pub duration: Duration,
}

/// The end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuditOutcome {
    /// It has a result. A tool that failed has one, too, with `is_error`.
    Complete {
        /// True if the tool failed.
        is_error: bool,
    },
    /// The call waits for input.
    InputRequired,
    /// The call has become a task.
    Task,
    /// It was answered with a JSON-RPC error. This includes a panic of an inner layer.
    Error {
        /// The code of the error.
        code: i64,
    },
    /// The request ended without a response: the client cancelled it or disconnected, or an outer
    /// layer timed out. Detached work, such as a single-use round, may still complete.
    Cancelled,
}

/// The longest recorded name, in characters.
const MAX_NAME: usize = 256;
/// The longest recorded argument, in bytes of JSON.
const MAX_ARGUMENT: usize = 1024;
/// Stands for a value that cannot be parsed.
const UNREADABLE: &str = "[unreadable]";

impl Audit {
    /// Creates a layer that logs records without arguments.
    pub fn new() -> Self {
        Self { arguments: Arc::default(), sink: Arc::new(log) }
    }

    /// Records the values of these arguments. Default: none. A value of more than 1 KiB of JSON is
    /// replaced by `"[too long]"`, and one that cannot be parsed by `"[unreadable]"`.
    pub fn arguments<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.arguments = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the function that gets the records, instead of the log. It must not block or panic.
    pub fn sink(mut self, sink: impl Fn(&AuditRecord) + Send + Sync + 'static) -> Self {
        self.sink = Arc::new(sink);
        self
    }

    fn begin(&self, request: &Request) -> Pending {
        let short = |text: &str| text.chars().take(MAX_NAME).collect();
        let record = AuditRecord {
            method: short(request.method()),
            name: request.name().map(|name| match request.method() {
                method::RESOURCES_READ => short(uri::without_query(&name)),
                _ => short(&name),
            }),
            principal: request.principal().cloned(),
            is_first_round: request.is_first_round(),
            arguments: self.recorded(request.arguments()),
            outcome: AuditOutcome::Cancelled,
            duration: Duration::ZERO,
        };
        Pending { record, started: Instant::now(), sink: Arc::clone(&self.sink) }
    }

    fn recorded(&self, arguments: Option<&str>) -> Object {
        let Some(text) = arguments.filter(|_| !self.arguments.is_empty()) else {
            return Object::new();
        };
        // The others are not parsed: what is wrong with them must not hide these.
        let Ok(given) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) else {
            let unreadable = |name: &String| (name.clone(), UNREADABLE.into());
            return self.arguments.iter().map(unreadable).collect();
        };
        let recorded = given.into_iter().filter(|(name, _)| self.arguments.contains(name));
        let shortened = recorded.map(|(name, text)| {
            let value = serde_json::from_str::<Value>(text.get());
            let value = value.unwrap_or_else(|_| UNREADABLE.into());
            let value = exact_text(text.get()).map_or(value, Value::from);
            // Not of the text: that may be padded.
            let is_long = value.to_string().len() > MAX_ARGUMENT;
            (name, if is_long { "[too long]".into() } else { value })
        });
        shortened.collect()
    }
}

impl Default for Audit {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns JSON text without spaces between its tokens, if it has a number with more digits than a
/// [`Value`] keeps: the record must tell apart what the tool can.
fn exact_text(json: &str) -> Option<String> {
    let (mut compact, mut number) = (String::new(), String::new());
    let (mut in_string, mut is_escaped, mut is_rounded) = (false, false, false);
    for c in json.chars() {
        if in_string {
            in_string = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
        } else if c.is_ascii_whitespace() {
            continue;
        } else if c == '-' || c.is_ascii_digit() || (!number.is_empty() && "+.eE".contains(c)) {
            number.push(c);
        } else {
            is_rounded |= has_many_digits(&std::mem::take(&mut number));
            in_string = c == '"';
        }
        compact.push(c);
    }
    (is_rounded || has_many_digits(&number)).then_some(compact)
}

/// Returns true if a number is not an integer of 64 bits, and a double does not keep its digits.
fn has_many_digits(number: &str) -> bool {
    let is_integer = number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
    let given = significant_digits(number);
    // A double keeps 15 digits, and some numbers of 16 and 17.
    let is_kept = || {
        let double = number.parse::<f64>().map(|double| format!("{double:e}"));
        double.is_ok_and(|double| significant_digits(&double) == given)
    };
    !is_integer && given.len() > 15 && !is_kept()
}

/// Returns the digits of a number without zeros at either end.
fn significant_digits(number: &str) -> String {
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    digits.trim_matches('0').to_owned()
}

/// Writes a record to the log.
fn log(record: &AuditRecord) {
    let principal = record.principal.as_ref();
    let (outcome, code) = match record.outcome {
        AuditOutcome::Complete { is_error: false } => ("complete", None),
        AuditOutcome::Complete { is_error: true } => ("tool_error", None),
        AuditOutcome::InputRequired => ("input_required", None),
        AuditOutcome::Task => ("task", None),
        AuditOutcome::Error { code } => ("error", Some(code)),
        AuditOutcome::Cancelled => ("cancelled", None),
    };
    let arguments = (!record.arguments.is_empty())
        .then(|| serde_json::to_string(&record.arguments).unwrap_or_default());
    tracing::info!(
        target: "mrtr::audit",
        method = record.method,
        name = record.name,
        issuer = principal.map(Principal::issuer),
        subject = principal.map(Principal::subject),
        client = principal.and_then(Principal::client),
        first_round = record.is_first_round,
        arguments,
        outcome,
        code,
        duration_ms = u64::try_from(record.duration.as_millis()).unwrap_or(u64::MAX),
        "request"
    );
}

/// The record of a request in flight. It is cancelled, unless it ends.
struct Pending {
    record: AuditRecord,
    started: Instant,
    sink: Arc<dyn Fn(&AuditRecord) + Send + Sync>,
}

impl Pending {
    fn end(mut self, outcome: &Result<Response, ErrorObject>) {
        self.record.outcome = match outcome {
            Ok(response) => match response.result_type() {
                ResultType::InputRequired => AuditOutcome::InputRequired,
                ResultType::Task => AuditOutcome::Task,
                _ => AuditOutcome::Complete { is_error: response.is_tool_error() },
            },
            Err(error) => AuditOutcome::Error { code: error.code },
        };
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.record.duration = self.started.elapsed();
        if std::thread::panicking() {
            // The server answers a panic with an internal error.
            self.record.outcome = AuditOutcome::Error { code: code::INTERNAL_ERROR };
        }
        // A panic during a panic would abort the process.
        if catch_unwind(AssertUnwindSafe(|| (self.sink)(&self.record))).is_err() {
            tracing::error!(target: "mrtr::audit", "the sink of audit records panicked");
        }
    }
}

impl Layer<Next> for Audit {
    type Service = Next;

    fn layer(&self, next: Next) -> Next {
        let audit = self.clone();
        let audited = from_fn(move |request: Request, next: Next| {
            let pending = audit.begin(&request);
            async move {
                let outcome = next.run(request).await;
                pending.end(&outcome);
                outcome
            }
        });
        audited.layer(next)
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("arguments", &self.arguments).finish_non_exhaustive()
    }
}
