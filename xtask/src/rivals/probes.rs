//! The requests that test requirements.

use serde_json::{Value, json};

use Holds::{Error, Refused, Result, Status};

/// A request that tests a requirement.
pub struct Probe {
    /// The id in the ledger.
    pub id: &'static str,
    pub what: &'static str,
    pub verb: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    pub holds: Holds,
}

/// The response that meets the requirement.
pub enum Holds {
    /// This status, and an error with this code.
    Refused(u16, i64),
    /// An error with this code, with any status.
    Error(i64),
    Status(u16),
    /// A result with a value at this place.
    Result(&'static str),
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "probe", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {}, "url": {} } },
    })
}

/// Creates a valid request.
fn probe(id: &'static str, what: &'static str, method: &str, params: Value, holds: Holds) -> Probe {
    let name = ["name", "uri"].iter().find_map(|key| params.get(key)?.as_str().map(str::to_owned));
    let mut all = json!({ "_meta": meta() });
    if let (Some(all), Value::Object(params)) = (all.as_object_mut(), params) {
        all.extend(params);
    }
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": all }).to_string();
    let mut headers = vec![
        ("Content-Type", "application/json".to_owned()),
        ("Accept", "application/json, text/event-stream".to_owned()),
        ("MCP-Protocol-Version", "2026-07-28".to_owned()),
        ("Mcp-Method", method.to_owned()),
    ];
    headers.extend(name.filter(|_| NAMED.contains(&method)).map(|name| ("Mcp-Name", name)));
    Probe { id, what, verb: "POST", headers, body, holds }
}

/// Methods whose requests have the header `Mcp-Name`.
const NAMED: [&str; 3] = ["tools/call", "prompts/get", "resources/read"];

impl Probe {
    fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(other, _)| *other != name);
        self.headers.extend((!value.is_empty()).then(|| (name, value.to_owned())));
        self
    }

    fn body(mut self, from: &str, to: &str) -> Self {
        self.body = self.body.replace(from, to);
        self
    }

    fn whole(mut self, verb: &'static str, body: &str) -> Self {
        (self.verb, self.body) = (verb, body.to_owned());
        self
    }
}

fn add(id: &'static str, what: &'static str, holds: Holds) -> Probe {
    let params = json!({ "name": "add", "arguments": { "a": 2, "b": 3 } });
    probe(id, what, "tools/call", params, holds)
}

fn call(id: &'static str, what: &'static str, name: &str, holds: Holds) -> Probe {
    probe(id, what, "tools/call", json!({ "name": name, "arguments": {} }), holds)
}

fn list(id: &'static str, what: &'static str, holds: Holds) -> Probe {
    probe(id, what, "tools/list", json!({}), holds)
}

fn brief() -> Value {
    json!({ "name": "brief", "arguments": {} })
}

/// The capabilities that a probe declares, as text in the body, and those with forms only.
const CAPABILITIES: &str = r#"{"elicitation":{"form":{},"url":{}}}"#;
const FORMS: &str = r#"{"elicitation":{"form":{}}}"#;

/// Returns all requests.
pub fn all() -> impl Iterator<Item = Probe> {
    [headers(), malformed(), undeclared(), content()].into_iter().flatten()
}

/// Requests with invalid headers.
fn headers() -> Vec<Probe> {
    vec![
        add("http/origin-403", "a foreign Origin", Status(403))
            .header("Origin", "https://evil.example"),
        add("http/version-header-required", "no MCP-Protocol-Version", Refused(400, -32020))
            .header("MCP-Protocol-Version", ""),
        add(
            "http/version-mismatch-rejected",
            "an MCP-Protocol-Version that differs from the body",
            Refused(400, -32020),
        )
        .header("MCP-Protocol-Version", "2025-11-25"),
        add(
            "http/method-mismatch-rejected",
            "an Mcp-Method that differs from the body",
            Refused(400, -32020),
        )
        .header("Mcp-Method", "tools/list"),
        add("http/mismatch-code", "no Mcp-Method", Refused(400, -32020)).header("Mcp-Method", ""),
        add(
            "http/name-mismatch-rejected",
            "an Mcp-Name that differs from the body",
            Refused(400, -32020),
        )
        .header("Mcp-Name", "fail"),
        add("http/mismatch-status", "no Mcp-Name", Refused(400, -32020)).header("Mcp-Name", ""),
        probe(
            "http/name-checked-elsewhere",
            "no Mcp-Name for a prompt",
            "prompts/get",
            brief(),
            Refused(400, -32020),
        )
        .header("Mcp-Name", ""),
        add("http/name-decoded-first", "Mcp-Name in base64", Result("/result/content"))
            .header("Mcp-Name", "=?base64?YWRk?="),
    ]
}

/// Malformed and unsupported requests.
fn malformed() -> Vec<Probe> {
    vec![
        add("http/unsupported-version-400", "an unknown version", Refused(400, -32022))
            .header("MCP-Protocol-Version", "1900-01-01")
            .body("2026-07-28", "1900-01-01"),
        add("base/meta-missing-32602", "no clientCapabilities in `_meta`", Refused(400, -32602))
            .body("/clientCapabilities", "/other"),
        add("base/standard-codes", "a body that is not JSON", Refused(400, -32700))
            .whole("POST", "{"),
        list("base/standard-codes", "a batch", Refused(400, -32600)).whole("POST", "[]"),
        list("http/get-405", "GET", Status(405)).whole("GET", ""),
        probe("http/notification-202", "a notification", "notifications/x", json!({}), Status(202))
            .body(r#""id":7,"#, ""),
    ]
}

/// Requests that need a capability the client did not declare.
fn undeclared() -> Vec<Probe> {
    vec![
        call(
            "mrtr/declared-form-only",
            "a form for a client without forms",
            "form",
            Refused(400, -32021),
        )
        .body(CAPABILITIES, "{}"),
        call(
            "mrtr/declared-in-manual-form",
            "a URL for a client with forms only",
            "url",
            Refused(400, -32021),
        )
        .body(CAPABILITIES, FORMS),
        call(
            "mrtr/declared-sampling-only",
            "sampling for a client with forms only",
            "model",
            Refused(400, -32021),
        )
        .body(CAPABILITIES, FORMS),
        call(
            "mrtr/declared-roots-only",
            "roots for a client with forms only",
            "roots",
            Refused(400, -32021),
        )
        .body(CAPABILITIES, FORMS),
        probe(
            "prompt/capabilities-respected-server",
            "a prompt that requires input, without the capability",
            "prompts/get",
            brief(),
            Refused(400, -32021),
        )
        .body(CAPABILITIES, "{}"),
        probe(
            "base/missing-capability-32021",
            "a resource that requires input, without the capability",
            "resources/read",
            json!({ "uri": "note://7" }),
            Refused(400, -32021),
        )
        .body(CAPABILITIES, "{}"),
    ]
}

/// Requests for unknown items, and required members of results.
fn content() -> Vec<Probe> {
    vec![
        call("tool/unknown-tool", "an unknown tool", "nope", Error(-32602)),
        probe(
            "prompt/unknown-name",
            "an unknown prompt",
            "prompts/get",
            json!({ "name": "nope" }),
            Error(-32602),
        ),
        probe(
            "resource/not-found-code",
            "an unknown resource",
            "resources/read",
            json!({ "uri": "gone://1" }),
            Error(-32602),
        ),
        probe(
            "page/invalid-cursor-code",
            "an invalid cursor",
            "tools/list",
            json!({ "cursor": "made-up" }),
            Error(-32602),
        ),
        list("log/invalid-level-32602", "an unknown log level", Error(-32602))
            .body(r#""_meta":{"#, r#""_meta":{"io.modelcontextprotocol/logLevel":"loud","#),
        list("cache/tools-list-hints", "a list", Result("/result/ttlMs")),
        list("base/result-type-present", "a list", Result("/result/resultType")),
        list(
            "base/server-info-in-results",
            "a list",
            Result("/result/_meta/io.modelcontextprotocol~1serverInfo"),
        ),
        add(
            "tool/inputs-validated",
            "a string where the schema requires an integer",
            Result("/result/isError"),
        )
        .body(r#""a":2"#, r#""a":"2""#),
    ]
}
