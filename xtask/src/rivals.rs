//! The same requests to our server and to those of other SDKs, as each ships: which requirement holds, and how
//! it shows where it does not. The outcome is a table in the ledger.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::Result;
use crate::interop::Peer;
use crate::requirements::{self, BEGIN, END, LEDGER};
use crate::run::{Server, build, root};

/// A request that puts a requirement to the test.
struct Probe {
    /// The row of the ledger.
    id: &'static str,
    what: &'static str,
    verb: &'static str,
    headers: Vec<(&'static str, String)>,
    body: String,
    holds: Holds,
}

/// When the requirement holds.
enum Holds {
    /// This status, and an error with this code.
    Refused(u16, i64),
    /// An error with this code, with whatever status.
    Error(i64),
    Status(u16),
    /// A result that has something at this place.
    Result(&'static str),
}

struct Answer {
    status: u16,
    /// The JSON-RPC response, be it JSON or the last event.
    message: Value,
}

impl Answer {
    fn code(&self) -> Option<i64> {
        self.message.pointer("/error/code").and_then(Value::as_i64)
    }

    /// What it is, in a few words.
    fn shown(&self) -> String {
        let Self { status, message } = self;
        match (self.code(), message.pointer("/result/resultType").and_then(Value::as_str)) {
            (Some(code), _) => format!("{status} and {code}"),
            (None, Some("input_required")) => format!("{status} and the question"),
            (None, _) if message.pointer("/result/isError") == Some(&json!(true)) => {
                format!("{status} and `isError`")
            }
            (None, _) if message.get("result").is_some() => format!("{status} and a result"),
            (None, _) => format!("{status} alone"),
        }
    }
}

impl Probe {
    fn holds(&self, answer: &Answer) -> std::result::Result<(), String> {
        let holds = match self.holds {
            Holds::Refused(status, code) => (answer.status, answer.code()) == (status, Some(code)),
            Holds::Error(code) => answer.code() == Some(code),
            Holds::Status(status) => answer.status == status,
            Holds::Result(place) => {
                if answer.message.get("result").is_some() && answer.message.pointer(place).is_none()
                {
                    let place = place.replace("~1", "/");
                    return Err(format!("no `{}`", place.rsplit('/').next().unwrap_or_default()));
                }
                answer.message.pointer(place).is_some()
            }
        };
        if holds { Ok(()) } else { Err(answer.shown()) }
    }
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "probe", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {}, "url": {} } },
    })
}

/// A good request, to be made worse.
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

/// The methods whose requests have `Mcp-Name`.
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

fn probes() -> Vec<Probe> {
    use Holds::{Error, Refused, Result, Status};
    let add = |id, what, holds| {
        let params = json!({ "name": "add", "arguments": { "a": 2, "b": 3 } });
        probe(id, what, "tools/call", params, holds)
    };
    let call = |id, what, name: &str, holds| {
        probe(id, what, "tools/call", json!({ "name": name, "arguments": {} }), holds)
    };
    let list = |id, what, holds| probe(id, what, "tools/list", json!({}), holds);
    let brief = json!({ "name": "brief", "arguments": {} });
    let note = json!({ "uri": "note://7" });
    let capabilities = r#"{"elicitation":{"form":{},"url":{}}}"#;
    let forms = r#"{"elicitation":{"form":{}}}"#;
    vec![
        add("http/origin-403", "an Origin of somewhere else", Status(403))
            .header("Origin", "https://evil.example"),
        add("http/version-header-required", "no MCP-Protocol-Version", Refused(400, -32020))
            .header("MCP-Protocol-Version", ""),
        add(
            "http/version-mismatch-rejected",
            "another MCP-Protocol-Version than in the body",
            Refused(400, -32020),
        )
        .header("MCP-Protocol-Version", "2025-11-25"),
        add(
            "http/method-mismatch-rejected",
            "another Mcp-Method than in the body",
            Refused(400, -32020),
        )
        .header("Mcp-Method", "tools/list"),
        add("http/mismatch-code", "no Mcp-Method", Refused(400, -32020)).header("Mcp-Method", ""),
        add(
            "http/name-mismatch-rejected",
            "another Mcp-Name than in the body",
            Refused(400, -32020),
        )
        .header("Mcp-Name", "fail"),
        add("http/mismatch-status", "no Mcp-Name", Refused(400, -32020)).header("Mcp-Name", ""),
        probe(
            "http/name-checked-elsewhere",
            "no Mcp-Name for a prompt",
            "prompts/get",
            brief.clone(),
            Refused(400, -32020),
        )
        .header("Mcp-Name", ""),
        add("http/name-decoded-first", "Mcp-Name in base64", Result("/result/content"))
            .header("Mcp-Name", "=?base64?YWRk?="),
        add("http/unsupported-version-400", "a version that nobody speaks", Refused(400, -32022))
            .header("MCP-Protocol-Version", "1900-01-01")
            .body("2026-07-28", "1900-01-01"),
        add("base/meta-missing-32602", "no clientCapabilities in `_meta`", Refused(400, -32602))
            .body("/clientCapabilities", "/other"),
        add("base/standard-codes", "a body that is no JSON", Refused(400, -32700))
            .whole("POST", "{"),
        list("base/standard-codes", "a batch", Refused(400, -32600)).whole("POST", "[]"),
        list("http/get-405", "GET", Status(405)).whole("GET", ""),
        probe("http/notification-202", "a notification", "notifications/x", json!({}), Status(202))
            .body(r#""id":7,"#, ""),
        call(
            "mrtr/declared-form-only",
            "a form for a client without forms",
            "form",
            Refused(400, -32021),
        )
        .body(capabilities, "{}"),
        call(
            "mrtr/declared-in-manual-form",
            "a page for a client with forms only",
            "url",
            Refused(400, -32021),
        )
        .body(capabilities, forms),
        call(
            "mrtr/declared-sampling-only",
            "sampling for a client with forms only",
            "model",
            Refused(400, -32021),
        )
        .body(capabilities, forms),
        call(
            "mrtr/declared-roots-only",
            "roots for a client with forms only",
            "roots",
            Refused(400, -32021),
        )
        .body(capabilities, forms),
        probe(
            "prompt/capabilities-respected-server",
            "a prompt that asks a client that cannot be asked",
            "prompts/get",
            brief,
            Refused(400, -32021),
        )
        .body(capabilities, "{}"),
        probe(
            "base/missing-capability-32021",
            "a resource that asks a client that cannot be asked",
            "resources/read",
            note,
            Refused(400, -32021),
        )
        .body(capabilities, "{}"),
        call("tool/unknown-tool", "a tool that there is not", "nope", Error(-32602)),
        probe(
            "prompt/unknown-name",
            "a prompt that there is not",
            "prompts/get",
            json!({ "name": "nope" }),
            Error(-32602),
        ),
        probe(
            "resource/not-found-code",
            "a resource that there is not",
            "resources/read",
            json!({ "uri": "gone://1" }),
            Error(-32602),
        ),
        probe(
            "page/invalid-cursor-code",
            "a cursor that was never given out",
            "tools/list",
            json!({ "cursor": "made-up" }),
            Error(-32602),
        ),
        list("log/invalid-level-32602", "a log level that there is not", Error(-32602))
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
            "a text where the schema says integer",
            Result("/result/isError"),
        )
        .body(r#""a":2"#, r#""a":"2""#),
    ]
}

fn send(port: u16, probe: &Probe) -> Result<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut text =
        format!("{} /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n", probe.verb);
    for (name, value) in &probe.headers {
        text.extend([name, ": ", value, "\r\n"]);
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n{}", probe.body.len(), probe.body));
    stream.write_all(text.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| format!("{}: no status in {text:?}", probe.id))?;
    // Wherever it stands: as the body, in a chunk, in an event.
    let mut lines = text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let message =
        lines.rfind(|line| line.starts_with('{')).and_then(|line| serde_json::from_str(line).ok());
    Ok(Answer { status, message: message.unwrap_or_default() })
}

pub fn run(args: &[String]) -> Result {
    let bin = build(&["--package", "mrtr-conformance", "--bins"])?;
    let ours = Server::start(&mut Command::new(bin.join("interop-server")))?;
    let peers = Peer::all()?;
    let mut servers = Vec::new();
    for peer in &peers {
        // What it logs about our requests is no news here.
        servers.push(Server::start(peer.server.command().stderr(Stdio::null()))?);
    }
    let known = requirements::ids()?;
    let (mut table, mut wrong, mut broken) = (String::new(), Vec::new(), 0);
    let names: Vec<_> =
        peers.iter().map(|peer| format!("{} {}", peer.name, peer.version)).collect();
    table.push_str(&format!(
        "| id | level | sent | {} |\n|---|---|---|{}\n",
        names.join(" | "),
        "---|".repeat(names.len())
    ));
    for probe in probes() {
        let level = known.get(probe.id).ok_or_else(|| format!("{LEDGER} lacks {}", probe.id))?;
        if let Err(shown) = probe.holds(&send(ours.port, &probe)?) {
            wrong.push(format!("{}, {}: ours answers {shown}", probe.id, probe.what));
        }
        let mut cells = Vec::new();
        for server in &servers {
            cells.push(probe.holds(&send(server.port, &probe)?).err());
        }
        if cells.iter().any(Option::is_some) {
            broken += 1;
            let cells: Vec<_> =
                cells.into_iter().map(|cell| cell.unwrap_or_else(|| "holds".to_owned())).collect();
            table.push_str(&format!(
                "| {} | {level} | {} | {} |\n",
                probe.id,
                probe.what,
                cells.join(" | ")
            ));
        }
    }
    println!(
        "\n{table}\n  {} requests; to {broken} of them a rival answers otherwise",
        probes().len()
    );
    let ledger = fs::read_to_string(root().join(LEDGER))?;
    let (before, rest) = ledger.split_once(BEGIN).ok_or("the ledger lacks the place for rivals")?;
    let (stands, after) =
        rest.split_once(END).ok_or("the ledger lacks the end of the place for rivals")?;
    if args.iter().any(|arg| arg == "--write") {
        fs::write(root().join(LEDGER), format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))?;
    } else if stands.trim() != table.trim() {
        wrong.push(format!("{LEDGER} says otherwise: run `cargo xtask rivals --write` and look"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n  ").into()) }
}
