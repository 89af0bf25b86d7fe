//! The rounds of a call, with the content of their request states.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use mrtr::client::RequestInfo;
use mrtr::development::RequestState;
use mrtr::schema::method;
use mrtr::terminal::sanitize_line;
use mrtr::{KeyRing, UnixSeconds};
use mrtr_codec::{Binding, Digest, OpenError};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::output::{self, dim};

/// The longest value that is shown, in characters.
const MAX_VALUE: usize = 200;

/// Shows a round of a call of a tool with these arguments.
pub(super) fn show(
    request: &RequestInfo<'_>,
    time: Duration,
    result: &RawValue,
    keys: &KeyRing,
    arguments: &str,
) {
    if request.method != method::TOOLS_CALL {
        return;
    }
    let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
    let text = |name: &str| result.get(name).and_then(Value::as_str);
    let what = text("resultType").unwrap_or("complete").replace('_', " ");
    let round = format!("round {} · {} after {time:.0?}", request.round, sanitize_line(&what));
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

#[cfg(test)]
mod tests {
    use mrtr::development::key_ring;
    use mrtr::schema::jsonrpc::{Params, Request, RequestId};
    use mrtr::testing::Replicas;
    use mrtr::{Context, Secret, Server, Tool};
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Deserialize, schemars::JsonSchema)]
    struct Text {
        #[expect(dead_code, reason = "the question stays open")]
        text: String,
    }

    #[tokio::test]
    async fn table_has_a_row_for_each_entry() -> Result<(), Box<dyn std::error::Error>> {
        use mrtr::client::{OutgoingRequest, Transport as _};

        let keys = format!("active {}", *Secret::generate()?.to_base64url());
        let tool = Tool::new("t", "", async |cx: Context| -> mrtr::Result<String> {
            cx.step("long name", async |_| Ok("x".repeat(300))).await?;
            // The second character is one that JSON does not escape.
            cx.step("b\u{1b}[2J", async |_| Ok("\u{1b}[2J\u{9b}".to_owned())).await?;
            cx.elicit::<Text>("one", "?").await?;
            Ok(String::new())
        });
        let server = Server::builder("test", "1").allow_anonymous().sealer(key_ring(&keys)?);
        let replicas = Replicas::new([server.tool(tool).build()?]);
        let params = json!({ "name": "t", "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        } });
        let request = Request::new(RequestId::Number(1), "tools/call", Some(Params::new(&params)?));
        let response = replicas.send(OutgoingRequest::new(request)).await?;
        let result: Value = serde_json::from_str(response.outcome?.get())?;
        let token = result.get("requestState").and_then(Value::as_str).unwrap_or_default();
        let binding = Binding {
            principal: None,
            proof_key: None,
            method: "tools/call",
            target: "t",
            arguments: Digest::from_json(None)?,
        };
        let state = RequestState::open(&key_ring(&keys)?, token, &binding, now())?;
        let rows = [
            format!("  step          long name  \"{}…", "x".repeat(MAX_VALUE - 1)),
            "  step          b\u{fffd}[2J      \"\\u001b[2J\u{fffd}\"".to_owned(),
            "  open          one\n".to_owned(),
        ];
        let table = table(&state);
        assert!(!table.contains(|c: char| c.is_control() && c != '\n'), "{table:?}");
        assert_eq!(table, rows.join("\n"));
        Ok(())
    }
}
