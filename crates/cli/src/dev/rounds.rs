//! The rounds of a call, with the content of their request states.

use std::fmt::Write as _;
use std::time::SystemTime;

use mrtr::client::CallEvent;
use mrtr::development::RequestState;
use mrtr::schema::method;
use mrtr::terminal::sanitize_line;
use mrtr::{KeyRing, UnixSeconds};
use mrtr_codec::{Binding, Digest, OpenError};
use serde_json::Value;

use crate::output::{self, dim};

/// The longest value that is shown, in characters.
const MAX_VALUE: usize = 200;

/// Shows the rounds of a call of a tool with these arguments.
pub(super) fn show(event: &CallEvent<'_>, keys: &KeyRing, arguments: &str) {
    let CallEvent::RequestFinished { request, elapsed, outcome, .. } = event else { return };
    if request.method != method::TOOLS_CALL {
        return;
    }
    let Ok(result) = outcome else { return };
    let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
    let text = |name: &str| result.get(name).and_then(Value::as_str);
    let what = text("resultType").unwrap_or("complete").replace('_', " ");
    let round = format!("round {} · {} after {elapsed:.0?}", request.round, sanitize_line(&what));
    output::note(&dim(&round));
    let Some(token) = text("requestState") else { return };
    let arguments = match Digest::from_json(Some(arguments)) {
        Ok(digest) => digest,
        Err(error) => return output::note(&dim(&format!("  arguments: {error}"))),
    };
    // The server serves standard streams, so its caller is anonymous.
    let (principal, proof_key) = (None, None);
    let (method, target) = (request.method, request.target);
    let binding = Binding { principal, proof_key, method, target, arguments };
    let shown = match RequestState::open(keys, token, &binding, now()) {
        Ok(state) => table(&state),
        Err(OpenError::UnknownKey) => format!(
            "  request state of {} bytes; `mrtr dev` can read it if the server uses \
             `ServerBuilder::ephemeral_key`",
            token.len()
        ),
        Err(error) => format!("  request state of {} bytes, not readable: {error}", token.len()),
    };
    output::note(&dim(shown.trim_end()));
}

/// Returns the content of a request state as a table.
fn table(state: &RequestState) -> String {
    let width = state.entries.iter().map(|entry| entry.key.chars().count()).max().unwrap_or(0);
    let mut table = String::new();
    for entry in &state.entries {
        let (kind, key) = (entry.kind, sanitize_line(&entry.key));
        let _ = writeln!(table, "  {kind:<12}  {key:<width$}  {}", shortened(&entry.value));
    }
    if let Some(json) = &state.manual {
        let _ = writeln!(table, "  state         {}", shortened(json));
    }
    if !state.open_questions.is_empty() {
        let keys: Vec<_> = state.open_questions.iter().map(|key| sanitize_line(key)).collect();
        let _ = writeln!(table, "  open          {}", keys.join(", "));
    }
    table
}

fn shortened(json: &str) -> String {
    let json = sanitize_line(json);
    match json.char_indices().nth(MAX_VALUE) {
        None => json,
        Some((end, _)) => format!("{}…", json.get(..end).unwrap_or_default()),
    }
}

fn now() -> UnixSeconds {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    UnixSeconds(since.as_secs())
}
