//! The baseline of the benchmark: bodies are read into typed structs and the same bytes are
//! returned, and nothing else. No header is checked, nothing is sealed, and no state is kept: a
//! request shows its round itself.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The baseline server. Holds the tools of `tools/list` besides the five, as JSON.
pub struct Floor {
    tools: String,
}

/// An answer, and true if it is a stream of events.
pub struct Answer {
    pub body: Vec<u8>,
    pub events: bool,
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(rename = "jsonrpc")]
    _jsonrpc: &'a str,
    id: u64,
    method: &'a str,
    #[serde(borrow)]
    params: Params<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(default)]
    name: &'a str,
    #[serde(borrow, default)]
    arguments: Arguments<'a>,
    #[serde(borrow, rename = "_meta")]
    meta: Meta<'a>,
    #[serde(borrow)]
    input_responses: Option<HashMap<&'a str, Response>>,
    request_state: Option<&'a str>,
}

#[derive(Default, Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    item: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    _version: &'a str,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    _capabilities: &'a RawValue,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientInfo")]
    _info: &'a RawValue,
    progress_token: Option<u64>,
}

#[derive(Deserialize)]
struct Response {
    action: String,
    content: Content,
}

#[derive(Deserialize)]
struct Content {
    quantity: Option<i64>,
    yes: Option<bool>,
}

#[derive(Serialize)]
struct Reply<R> {
    jsonrpc: &'static str,
    id: u64,
    result: R,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Complete<'a> {
    result_type: &'static str,
    content: [Text<'a>; 1],
    #[serde(rename = "_meta")]
    meta: ResultMeta,
}

#[derive(Serialize)]
struct Text<'a> {
    r#type: &'static str,
    text: &'a str,
}

#[derive(Serialize)]
struct ResultMeta {
    #[serde(rename = "io.modelcontextprotocol/serverInfo")]
    info: Info,
}

#[derive(Serialize)]
struct Info {
    name: &'static str,
    version: &'static str,
}

const META: ResultMeta = ResultMeta { info: Info { name: "bench", version: "1.0.0" } };

/// Lengths of mrtr's states after the question of `order`, and after the first and the second of
/// `plan`.
const STATES: [usize; 3] = [234, 988, 1840];

impl Floor {
    /// Creates the baseline with `tools` tools besides the five.
    pub fn new(tools: usize) -> Self {
        let schema = |field: &str| {
            format!(
                r#"{{"type":"object","properties":{{"{field}":{{"type":"string"}}}},"required":["{field}"]}}"#
            )
        };
        let tool = |name: &str, description: &str, schema: &str| {
            format!(r#"{{"name":"{name}","description":"{description}","inputSchema":{schema}}}"#)
        };
        let none = r#"{"type":"object","properties":{}}"#;
        let mut all = vec![
            tool("echo", "Says it again", &schema("text")),
            tool("length", "Counts characters", &schema("text")),
            tool("order", "Orders something", &schema("item")),
            tool("plan", "Does ten steps", none),
            tool("count", "Counts to three", none),
        ];
        all.extend(
            (1..=tools).map(|n| tool(&format!("tool-{n}"), "Does one thing", &schema("text"))),
        );
        Self { tools: format!("[{}]", all.join(",")) }
    }

    /// Answers a request body.
    ///
    /// # Errors
    ///
    /// If the body is not a request of the benchmark.
    pub fn answer(&self, body: &[u8]) -> Result<Answer, serde_json::Error> {
        let request: Request<'_> = serde_json::from_slice(body)?;
        let (id, params) = (request.id, &request.params);
        if request.method == "tools/list" {
            let meta = serde_json::to_string(&META)?;
            let tools = &self.tools;
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","tools":{tools},"ttlMs":0,"cacheScope":"private","_meta":{meta}}}}}"#
            );
            return Ok(Answer { body: body.into_bytes(), events: false });
        }
        let accepted = |check: fn(&Content) -> bool| {
            let mut responses = params.input_responses.iter().flat_map(HashMap::values);
            responses.next().is_some_and(|r| r.action == "accept" && check(&r.content))
        };
        let round = params.request_state.map_or(0, str::len);
        let text = match params.name {
            "echo" => params.arguments.text.clone().unwrap_or_default(),
            "length" => params
                .arguments
                .text
                .as_ref()
                .map_or(0, |text| text.chars().count())
                .to_string()
                .into(),
            "order" => {
                let item = params.arguments.item.as_deref().unwrap_or_default();
                let in_range =
                    |content: &Content| content.quantity.is_some_and(|n| (1..=10).contains(&n));
                if round == 0 || !accepted(in_range) {
                    let message = format!("How many of {item}?");
                    let field = r#""quantity":{"type":"integer","minimum":1,"maximum":10}"#;
                    return question(id, "quantity", &message, field, STATES[0]);
                }
                let responses = params.input_responses.iter().flat_map(HashMap::values);
                let quantity: i64 = responses.filter_map(|r| r.content.quantity).sum();
                format!("{quantity} x {item}").into()
            }
            "plan" => {
                let yes = accepted(|content| content.yes.is_some());
                let field = r#""yes":{"type":"boolean"}"#;
                if round == 0 || !yes {
                    return question(id, "yes", "Go on?", field, STATES[1]);
                }
                if round == STATES[1] {
                    return question(id, "yes", "Really?", field, STATES[2]);
                }
                "1000".into()
            }
            _ => "counted".into(),
        };
        let complete = Complete {
            result_type: "complete",
            content: [Text { r#type: "text", text: &text }],
            meta: META,
        };
        let reply = Reply { jsonrpc: "2.0", id, result: complete };
        let Some(token) = params.meta.progress_token.filter(|_| params.name == "count") else {
            return Ok(Answer { body: serde_json::to_vec(&reply)?, events: false });
        };
        let mut events = String::new();
        for n in 1..=3 {
            events += &format!(
                r#"data: {{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{n},"total":3}}}}"#
            );
            events += "\n\n";
        }
        events += &format!("data: {}\n\n", serde_json::to_string(&reply)?);
        Ok(Answer { body: events.into_bytes(), events: true })
    }
}

/// Returns a form with one field, and a state without content.
fn question(
    id: u64,
    field: &str,
    message: &str,
    property: &str,
    state: usize,
) -> Result<Answer, serde_json::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Asked<'a> {
        result_type: &'static str,
        input_requests: HashMap<&'a str, Elicit<'a>>,
        request_state: &'a str,
        #[serde(rename = "_meta")]
        meta: ResultMeta,
    }
    #[derive(Serialize)]
    struct Elicit<'a> {
        method: &'static str,
        params: Form<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Form<'a> {
        mode: &'static str,
        message: &'a str,
        requested_schema: Box<RawValue>,
    }
    let schema =
        format!(r#"{{"type":"object","properties":{{{property}}},"required":["{field}"]}}"#);
    let params = Form { mode: "form", message, requested_schema: RawValue::from_string(schema)? };
    let asked = Asked {
        result_type: "input_required",
        input_requests: HashMap::from([(
            "answer",
            Elicit { method: "elicitation/create", params },
        )]),
        request_state: &"s".repeat(state),
        meta: META,
    };
    let reply = Reply { jsonrpc: "2.0", id, result: asked };
    Ok(Answer { body: serde_json::to_vec(&reply)?, events: false })
}

/// Parses the number after `--tools`.
pub fn tools() -> usize {
    std::env::args()
        .skip_while(|arg| arg != "--tools")
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}
