//! Requests, and checks of their responses.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write as _;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::Result;

/// One of the calls of `benches/README.md`.
#[derive(Default)]
pub struct Workload {
    kind: Kind,
    /// The name of a tool; empty for a list.
    tool: String,
    arguments: String,
    expected: String,
    /// The content of the form that answers a question.
    content: &'static str,
    /// Number of questions in a call.
    rounds: usize,
}

#[derive(Default, PartialEq)]
enum Kind {
    #[default]
    Call,
    /// A call that reports progress.
    Progress,
    /// A call that the client abandons after the first question.
    Abandoned,
    /// A list with this number of tools besides the five.
    List(usize),
}

/// The answer to a question, and the state that came with it.
pub struct Answered {
    key: String,
    state: String,
    /// Number of questions answered so far, including this one.
    pub round: usize,
}

pub enum Next {
    Done,
    Again(Answered),
}

#[derive(Deserialize)]
struct Reply<'a> {
    jsonrpc: &'a str,
    id: u64,
    #[serde(borrow)]
    result: Option<Outcome<'a>>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outcome<'a> {
    result_type: &'a str,
    #[serde(borrow, default)]
    content: Vec<Text<'a>>,
    is_error: Option<bool>,
    #[serde(borrow, default)]
    input_requests: HashMap<Cow<'a, str>, Question<'a>>,
    #[serde(borrow)]
    request_state: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tools: Option<Vec<Tool<'a>>>,
}

#[derive(Deserialize)]
struct Text<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Question<'a> {
    method: &'a str,
    params: Form,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Form {
    requested_schema: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(rename = "inputSchema")]
    _input_schema: Value,
}

#[derive(Deserialize)]
struct Progress<'a> {
    method: &'a str,
    params: ProgressParams,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams {
    progress_token: u64,
    progress: f64,
}

const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"load","version":"1.0.0"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}"#;

impl Workload {
    /// Parses the name of a workload. Text after a colon is a number: `list:200`, `grow:100:98`.
    pub fn new(name: &str) -> Result<Self> {
        let mut parts = name.split(':');
        let name = parts.next().unwrap_or_default();
        let mut number = || {
            parts.next().ok_or("a number is missing")?.parse::<usize>().map_err(|e| e.to_string())
        };
        let call = |tool: &str, arguments: Value, expected: &str| Self {
            tool: tool.to_owned(),
            arguments: arguments.to_string(),
            expected: expected.to_owned(),
            ..Self::default()
        };
        let text = "The quick brown fox jumps over the lazy dog";
        Ok(match name {
            "echo" => call("echo", json!({ "text": text }), text),
            "length" => call("length", json!({ "text": "x".repeat(64 << 10) }), "65536"),
            "order" => Self {
                content: r#"{"quantity":3}"#,
                rounds: 1,
                ..call("order", json!({ "item": "tea" }), "3 x tea")
            },
            "abandoned" => Self {
                kind: Kind::Abandoned,
                rounds: 1,
                ..call("order", json!({ "item": "tea" }), "")
            },
            "plan" => {
                Self { content: r#"{"yes":true}"#, rounds: 2, ..call("plan", json!({}), "1000") }
            }
            "count" => Self { kind: Kind::Progress, ..call("count", json!({}), "counted") },
            // Measures the growth of the cost, with mrtr alone.
            "last" => call(&format!("tool-{}", number()?), json!({ "text": text }), text),
            "grow" => {
                let (steps, bytes) = (number()?, number()?);
                Self {
                    content: r#"{"yes":true}"#,
                    rounds: 1,
                    ..call(
                        "grow",
                        json!({ "steps": steps, "bytes": bytes }),
                        &(steps * bytes).to_string(),
                    )
                }
            }
            "list" => Self { kind: Kind::List(number()?), ..Self::default() },
            other => return Err(format!("no such workload: {other}").into()),
        })
    }

    pub fn method(&self) -> &'static str {
        if matches!(self.kind, Kind::List(_)) { "tools/list" } else { "tools/call" }
    }

    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Writes the body of a request.
    pub fn write(&self, out: &mut Vec<u8>, id: u64, answered: Option<&Answered>) {
        let Self { tool, arguments, content, .. } = self;
        let method = self.method();
        let mut text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"#);
        if !tool.is_empty() {
            text += &format!(r#""name":"{tool}","arguments":{arguments},"#);
        }
        if let Some(Answered { key, state, .. }) = answered {
            text += &format!(
                r#""inputResponses":{{"{key}":{{"action":"accept","content":{content}}}}},"requestState":"{state}","#
            );
        }
        text += r#""_meta":{"#;
        if self.kind == Kind::Progress {
            text += &format!(r#""progressToken":{id},"#);
        }
        let _ = write!(out, "{text}{META}}}}}}}");
    }

    /// Returns the id of the request that a response answers.
    pub fn id_of(&self, answer: &[u8]) -> Result<u64> {
        #[derive(Deserialize)]
        struct OnlyId {
            id: u64,
        }
        Ok(serde_json::from_slice::<OnlyId>(answer).map_err(|e| wrong(&e, answer))?.id)
    }

    /// Checks the response to request `id`, sent after `round` answers. `before` holds the earlier
    /// messages of the stream.
    pub fn check(&self, answer: &[u8], before: &[Vec<u8>], id: u64, round: usize) -> Result<Next> {
        let wrong = |why: &str| wrong(&why, answer);
        let reply: Reply = serde_json::from_slice(answer).map_err(|e| wrong(&e.to_string()))?;
        if reply.jsonrpc != "2.0" || reply.id != id || reply.error.is_some() {
            return Err(wrong("not the result of the call"));
        }
        let outcome = reply.result.ok_or_else(|| wrong("no result"))?;
        match (&self.kind, outcome.result_type) {
            (Kind::List(tools), "complete") => {
                let listed = outcome.tools.unwrap_or_default();
                let echo = listed.iter().filter(|tool| tool.name == "echo").count();
                let numbered = listed.iter().filter(|tool| tool.name.starts_with("tool-")).count();
                if echo != 1 || numbered != *tools {
                    return Err(wrong("unexpected tools"));
                }
                return Ok(Next::Done);
            }
            (_, "input_required") => {
                let mut questions = outcome.input_requests.into_iter();
                let (Some((key, question)), None) = (questions.next(), questions.next()) else {
                    return Err(wrong("not one question"));
                };
                let property = question.params.requested_schema.pointer("/properties");
                let field = self.content.split('"').nth(1).unwrap_or("quantity");
                if question.method != "elicitation/create"
                    || property.and_then(|p| p.get(field)).is_none()
                {
                    return Err(wrong("unexpected question"));
                }
                if self.kind == Kind::Abandoned {
                    return Ok(Next::Done);
                }
                let state = outcome.request_state.ok_or_else(|| wrong("no state"))?.into_owned();
                if round == self.rounds {
                    return Err(wrong("too many questions"));
                }
                return Ok(Next::Again(Answered {
                    key: key.into_owned(),
                    state,
                    round: round + 1,
                }));
            }
            (_, "complete") => {}
            _ => return Err(wrong("unexpected type of result")),
        }
        let [Text { text }] = &outcome.content[..] else { return Err(wrong("not one text")) };
        if outcome.is_error == Some(true) || *text != self.expected {
            return Err(wrong("unexpected text"));
        }
        if round != self.rounds {
            return Err(wrong("a question is missing"));
        }
        if self.kind == Kind::Progress {
            let mut last = 0.0;
            for message in before {
                let Progress { method, params } = serde_json::from_slice(message)?;
                if method != "notifications/progress"
                    || params.progress_token != id
                    || params.progress != last + 1.0
                {
                    return Err(wrong("unexpected progress"));
                }
                last = params.progress;
            }
            if last != 3.0 {
                return Err(wrong("progress is missing"));
            }
        }
        Ok(Next::Done)
    }
}

fn wrong(why: &impl std::fmt::Display, answer: &[u8]) -> Box<dyn std::error::Error> {
    let shown = String::from_utf8_lossy(answer).chars().take(500).collect::<String>();
    format!("{why}: {shown}").into()
}

/// Returns a request that listens for changes of the list of tools.
pub fn listen() -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{{{META}}}}}}}"#
    )
}
