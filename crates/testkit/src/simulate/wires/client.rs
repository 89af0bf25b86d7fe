//! A client that speaks a dialect by its text only: it writes and reads JSON, and nothing of the
//! crate that it tests.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use mrtr_dialects::{Dialect, DialectEndpoint};
use mrtr_server::Server;
use serde_json::{Map, Value, json};
use tower_service::Service as _;

use super::super::tokens;
use super::super::world::RequestMark;

/// Answers by the text of their question.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) given: Vec<(String, Value)>,
    /// There is also an answer to a question that does not exist.
    pub(super) has_poison: bool,
}

/// What a client reads in a response.
pub(super) enum Reply {
    Result(Value),
    /// The texts of the questions.
    Questions(Vec<String>),
    /// An acknowledgement, or a new task.
    Nothing,
    /// The error about a state that does not fit into an event id.
    TooLong,
}

#[derive(Clone)]
pub(super) struct Request {
    body: String,
    event: Option<String>,
    pub(super) has_state: bool,
}

pub(super) struct Response {
    is_stream: bool,
    text: String,
}

impl Request {
    pub(super) async fn send(
        &self,
        mut endpoint: DialectEndpoint<Server>,
        mark: RequestMark,
    ) -> Result<Response, String> {
        let mut request = http::Request::post("/wire")
            .extension(tokens::all())
            .extension(mark)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(event) = &self.event {
            request = request.header("last-event-id", event);
        }
        let request = request.body(Full::<Bytes>::from(self.body.clone()));
        let request = request.map_err(|error| error.to_string())?;
        let response = match endpoint.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let kind = response.headers().get("content-type");
        let is_stream = kind.is_some_and(|kind| kind == "text/event-stream");
        let body = response.into_body().collect().await.map_err(|error| error.to_string())?;
        let text = String::from_utf8(body.to_bytes().to_vec()).map_err(|e| e.to_string())?;
        Ok(Response { is_stream, text })
    }
}

/// The client's side of one call.
pub(super) struct Client {
    dialect: Dialect,
    params: Value,
    is_task: bool,
    task: Option<String>,
    /// The state, or the id of the last event.
    state: Option<String>,
    /// The open questions: the text, and the key or the id of the answer.
    questions: Vec<(String, Value)>,
    next_id: u64,
}

impl Client {
    pub(super) fn new(dialect: Dialect, seed: u64, is_task: bool) -> Self {
        let mut params = json!({ "name": "program", "arguments": { "seed": seed.to_string() } });
        // In turns, the server decides.
        let asks = is_task && dialect != Dialect::MultiTurnSse;
        if asks && let Some(params) = params.as_object_mut() {
            params.insert("task".to_owned(), json!({}));
        }
        Self {
            dialect,
            params,
            is_task,
            task: None,
            state: None,
            questions: Vec::new(),
            next_id: 1,
        }
    }

    /// Returns true if the message that was just written creates a task.
    pub(super) fn is_first_of_task(&self) -> bool {
        self.is_task && self.task.is_none() && self.state.is_none()
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Writes the next message.
    pub(super) fn request(&mut self, answers: Option<Answers>) -> Result<Request, String> {
        let id = self.id();
        let (message, event) = match (&self.task, answers) {
            (Some(task), None) => {
                let params = json!({ "taskId": task });
                let method = "tasks/result";
                (json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }), None)
            }
            (Some(task), Some(answers)) => {
                let meta = json!({ "io.modelcontextprotocol/related-task": { "taskId": task } });
                (self.task_answers(id, &meta, answers)?, None)
            }
            (None, None) => (self.call(id), None),
            (None, Some(answers)) if self.dialect == Dialect::MultiTurnSse => {
                (self.array(answers)?, self.state.clone())
            }
            (None, Some(answers)) => (self.retry(id, answers)?, None),
        };
        let has_state = self.state.is_some();
        Ok(Request { body: message.to_string(), event, has_state })
    }

    fn call(&self, id: u64) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": self.params })
    }

    /// Returns the answers by key.
    fn by_key(&self, answers: Answers, is_wrapped: bool) -> Result<Value, String> {
        let mut all = Map::new();
        let wrap = |answer: Value| if is_wrapped { json!({ "result": answer }) } else { answer };
        for (text, answer) in answers.given {
            let (_, key) = self.questions.iter().find(|(other, _)| *other == text).ok_or("?")?;
            all.insert(key.as_str().ok_or("a key is no text")?.to_owned(), wrap(answer));
        }
        if answers.has_poison {
            let answer = json!({ "action": "accept", "content": { "n": 1_000_000 } });
            all.insert("poison".to_owned(), wrap(answer));
        }
        Ok(Value::Object(all))
    }

    fn task_answers(&self, id: u64, meta: &Value, answers: Answers) -> Result<Value, String> {
        if self.dialect == Dialect::Incomplete {
            let answers = self.by_key(answers, true)?;
            return Ok(
                json!({ "jsonrpc": "2.0", "id": id, "input_responses": answers, "_meta": meta }),
            );
        }
        let params = json!({ "inputResponses": self.by_key(answers, false)?, "_meta": meta });
        let method = "tasks/input_response";
        Ok(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
    }

    fn retry(&self, id: u64, answers: Answers) -> Result<Value, String> {
        let mut retry = self.call(id);
        let answers = self.by_key(answers, self.dialect != Dialect::Tasks2322)?;
        let state = json!(self.state);
        let message = retry.as_object_mut().ok_or("no object")?;
        let mut set = |name: &str, value: Value| drop(message.insert(name.to_owned(), value));
        match self.dialect {
            Dialect::Incomplete => {
                set("input_responses", answers);
                set("request_state", state);
            }
            Dialect::Dependent => {
                let mut answers = answers;
                let pings = answers.as_object_mut().ok_or("no object")?;
                let key = self.state.clone().ok_or("no state")?;
                pings.insert(key, json!({ "result": {} }));
                set("dependent_responses", answers);
            }
            _ => {
                let params = message.get_mut("params").and_then(Value::as_object_mut);
                let params = params.ok_or("no parameters")?;
                params.insert("inputResponses".to_owned(), answers);
                params.insert("requestState".to_owned(), state);
            }
        }
        Ok(retry)
    }

    fn array(&self, answers: Answers) -> Result<Value, String> {
        let mut all = Vec::new();
        for (text, answer) in answers.given {
            let (_, id) = self.questions.iter().find(|(other, _)| *other == text).ok_or("?")?;
            all.push(json!({ "jsonrpc": "2.0", "id": id, "result": answer }));
        }
        if answers.has_poison {
            let answer = json!({ "action": "accept", "content": { "n": 1_000_000 } });
            all.push(json!({ "jsonrpc": "2.0", "id": "poison", "result": answer }));
        }
        Ok(Value::Array(all))
    }

    /// Reads a response.
    pub(super) fn read(&mut self, response: Response) -> Result<Reply, String> {
        let Response { is_stream, text } = response;
        if is_stream {
            return self.read_turn(&text);
        }
        if text.is_empty() {
            return Ok(Reply::Nothing);
        }
        let message: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let too_long = message.pointer("/error/message").and_then(Value::as_str);
        if too_long.is_some_and(|why| why.contains("too long for an event id")) {
            return Ok(Reply::TooLong);
        }
        let result = message.get("result");
        let (requests, state) = match self.dialect {
            Dialect::Incomplete => (message.get("input_requests"), message.get("request_state")),
            Dialect::Dependent => (message.get("dependent_requests"), None),
            _ => {
                let member = |name: &str| result.and_then(|result| result.get(name));
                (member("inputRequests"), member("requestState"))
            }
        };
        if requests.is_some() || state.is_some() {
            return self.read_questions(requests, state.and_then(Value::as_str));
        }
        let Some(result) = result else { return Err(format!("the call failed: {message}")) };
        if let Some(id) = result.pointer("/task/taskId").and_then(Value::as_str) {
            self.task = Some(id.to_owned());
            return Ok(Reply::Nothing);
        }
        if result.get("content").is_none() {
            // The acknowledgement of answers.
            return Ok(Reply::Nothing);
        }
        Ok(Reply::Result(result.clone()))
    }

    fn read_questions(
        &mut self,
        requests: Option<&Value>,
        state: Option<&str>,
    ) -> Result<Reply, String> {
        self.questions.clear();
        if self.task.is_none() {
            self.state = state.map(str::to_owned);
        }
        for (key, request) in requests.and_then(Value::as_object).into_iter().flatten() {
            if request.get("method") == Some(&json!("ping")) {
                self.state = Some(key.clone());
                continue;
            }
            self.questions.push((text_of(request)?, json!(key)));
        }
        if self.task.is_none() && self.state.is_none() {
            return Err("a round without a state".to_owned());
        }
        Ok(Reply::Questions(self.questions.iter().map(|(text, _)| text.clone()).collect()))
    }

    fn read_turn(&mut self, text: &str) -> Result<Reply, String> {
        self.questions.clear();
        let mut last = None;
        for event in text.split("\n\n").filter(|event| !event.is_empty()) {
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
            last = Some((field("event: "), field("id: ")));
            if let Some(data) = field("data: ") {
                let message: Value =
                    serde_json::from_str(data).map_err(|error| error.to_string())?;
                let id = message.get("id").cloned().ok_or("a question without an id")?;
                self.questions.push((text_of(&message)?, id));
            }
        }
        let Some((Some("input_required"), Some(id))) = last else {
            return Err(format!("the stream ends with {last:?}"));
        };
        self.state = Some(id.to_owned());
        Ok(Reply::Questions(self.questions.iter().map(|(text, _)| text.clone()).collect()))
    }
}

/// Returns the text of a question, without the reason that a repeated one adds.
fn text_of(question: &Value) -> Result<String, String> {
    let text = question.pointer("/params/message").and_then(Value::as_str);
    let text = text.and_then(|text| text.lines().next());
    text.map(str::to_owned).ok_or_else(|| format!("a question without a text: {question}"))
}
