//! Handler parameters: extractors, arguments, and error types of the author.

use std::sync::{Arc, Mutex};

use http::{HeaderMap, HeaderValue};
use mrtr_client::{Client, ClientBuilder};
use mrtr_schema::capabilities::Implementation;
use mrtr_schema::notification;
use mrtr_server::extract::FromRequestParts;
use mrtr_server::manual::{InputRequired, ManualContext, ManualOutput};
use mrtr_server::{
    Context, Error, Extension, IntoError, Principal, Progress, Prompt, RequestParts, Result,
    Server, State, Tool, ToolOutput,
};
use mrtr_transport::{InProcess, IncomingRequest, NotificationSender, RequestHandler as _};
use serde_json::{Value, json};

use crate::support::requests::request;
use crate::support::{Counter, LogLines, Text, alice, with_meta};

#[derive(Clone)]
struct Pool(&'static str);

#[derive(Clone)]
struct Tenant(&'static str);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Args {
    n: u32,
}

fn server(tool: Tool) -> Server {
    let builder = Server::builder("s", "1").allow_anonymous().ephemeral_key();
    builder.tool(tool).state(Pool("a pool")).build().unwrap()
}

fn client(server: InProcess<Server>) -> ClientBuilder<InProcess<Server>> {
    Client::builder(server)
}

/// Calls the tool `t` as an anonymous client. Returns its text, after `!` if it is an error.
async fn call(tool: Tool, arguments: Value) -> String {
    call_through(InProcess::new(server(tool)), arguments).await
}

async fn call_through(server: InProcess<Server>, arguments: Value) -> String {
    let result = client(server).build().call_tool("t", arguments).await.unwrap();
    format!("{}{}", if result.is_error { "! " } else { "" }, result.text())
}

/// Sends a request with headers, as an HTTP transport does.
async fn send_with_headers(
    server: Server,
    method: &str,
    params: Value,
    headers: HeaderMap,
) -> Value {
    let meta = Some(Arc::new(serde_json::from_value(params["_meta"].clone()).unwrap()));
    let mut call =
        IncomingRequest::new(request(method, &params), meta, NotificationSender::closed());
    call.headers = headers;
    match Arc::new(server).handle(call).await.outcome {
        Ok(result) => serde_json::from_str(result.as_str()).unwrap(),
        Err(error) => json!({ "error": error }),
    }
}

#[tokio::test]
async fn state_extracts_the_value_given_to_the_builder() {
    let tool = async |State(pool): State<Pool>, _: Context| pool.0;
    assert_eq!(call(Tool::new("t", "", tool), json!({})).await, "a pool");
    // As the only parameter, without a pattern.
    let tool = async |pool: State<Pool>| pool.0.0;
    assert_eq!(call(Tool::new("t", "", tool), json!({})).await, "a pool");
}

#[tokio::test]
async fn extension_extracts_the_value_of_a_layer() {
    let tool = || Tool::new("t", "", async |Extension(tenant): Extension<Tenant>| tenant.0);
    let through = InProcess::new(server(tool())).with_extension(Tenant("a tenant"));
    assert_eq!(call_through(through, json!({})).await, "a tenant");
}

/// The client learns nothing of the server's types; the log names the missing one.
#[tokio::test]
async fn missing_extension_is_an_internal_error_that_the_log_names() {
    let (lines, _guard) = LogLines::collect();
    let runs = Counter::default();
    let ran = runs.clone();
    let tool = Tool::new("t", "", move |_: Extension<Tenant>| {
        ran.increment();
        std::future::ready("it ran")
    });
    let prompt = Prompt::new("p", "", async |_: Extension<Tenant>| "it ran");
    let builder = Server::builder("s", "1").allow_anonymous().ephemeral_key();
    let server = builder.tool(tool).prompt(prompt).build().unwrap();
    let text = call_through(InProcess::new(server.clone()), json!({})).await;
    assert_eq!(text, "! Something went wrong inside the server.");
    let error =
        client(InProcess::new(server)).build().get_prompt("p", json!({})).await.unwrap_err();
    let error = error.as_server_error().unwrap();
    assert_eq!(
        (error.code, error.message.as_str()),
        (-32603, "Something went wrong inside the server.")
    );
    assert_eq!(runs.get(), 0);
    let log = lines.text();
    let named = format!("extension of type `{}`", std::any::type_name::<Tenant>());
    assert_eq!(log.matches(&named).count(), 2, "{log}");
}

#[tokio::test]
async fn principal_is_extracted_or_its_absence_is_reported() {
    let required = || Tool::new("t", "", async |caller: Principal| caller.subject().to_owned());
    let optional = || {
        Tool::new("t", "", async |caller: Option<Principal>| {
            caller.map_or("anonymous".to_owned(), |caller| caller.subject().to_owned())
        })
    };
    for (tool, anonymous) in [
        (required as fn() -> Tool, "! This request needs an authenticated caller."),
        (optional, "anonymous"),
    ] {
        let through = InProcess::new(server(tool())).with_extension(alice());
        assert_eq!(call_through(through, json!({})).await, "alice");
        assert_eq!(call(tool(), json!({})).await, anonymous);
    }
    let prompt = Prompt::new("p", "", async |caller: Principal| caller.subject().to_owned());
    let builder = Server::builder("s", "1").allow_anonymous().ephemeral_key();
    let server = InProcess::new(builder.prompt(prompt).build().unwrap());
    let error = client(server).build().get_prompt("p", json!({})).await.unwrap_err();
    assert_eq!(error.as_server_error().unwrap().code, -32602);
}

#[tokio::test]
async fn header_map_holds_the_headers_of_the_request() {
    let tool = Tool::new("t", "", async |headers: HeaderMap| {
        headers
            .get("x-tenant")
            .map_or("no header".to_owned(), |value| value.to_str().unwrap_or_default().to_owned())
    });
    let server = server(tool);
    for (headers, text) in [
        (HeaderMap::from_iter([("x-tenant".parse().unwrap(), HeaderValue::from_static("a"))]), "a"),
        (HeaderMap::new(), "no header"),
    ] {
        let params = with_meta(json!({ "name": "t" }));
        let result = send_with_headers(server.clone(), "tools/call", params, headers).await;
        assert_eq!(result["content"][0]["text"], text);
    }
}

#[tokio::test]
async fn implementation_is_the_name_and_version_of_the_client() {
    let tool = || {
        Tool::new("t", "", async |client: Option<Implementation>| {
            client.map_or("unknown".to_owned(), |client| client.name)
        })
    };
    let mut params = with_meta(json!({ "name": "t" }));
    let send = async |params: Value| {
        let result =
            send_with_headers(server(tool()), "tools/call", params, HeaderMap::new()).await;
        result["content"][0]["text"].clone()
    };
    assert_eq!(send(params.clone()).await, "unknown");
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({ "name": "c", "version": "1" });
    assert_eq!(send(params).await, "c");
}

#[tokio::test]
async fn progress_reports_to_the_client_even_from_a_task() {
    let tool = Tool::new("t", "", async |progress: Progress| -> Result<&'static str> {
        progress.report(1.0, Some(3.0), Some("first"));
        let own = progress.clone();
        tokio::spawn(async move { own.report(2.0, Some(3.0), None) }).await?;
        progress.report(3.0, Some(3.0), None);
        Ok("done")
    });
    let reported = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&reported);
    let on_progress = move |progress: notification::Progress| {
        sink.lock().unwrap().push((progress.progress, progress.total, progress.message));
    };
    let client = client(InProcess::new(server(tool))).on_progress(on_progress).build();
    assert_eq!(client.call_tool("t", json!({})).await.unwrap().text(), "done");
    let expected = [
        (1.0, Some(3.0), Some("first".to_owned())),
        (2.0, Some(3.0), None),
        (3.0, Some(3.0), None),
    ];
    assert_eq!(*reported.lock().unwrap(), expected);
}

/// The tenant named in a header. Extraction awaits, as a look-up in a database would.
struct TenantName(String);

impl FromRequestParts for TenantName {
    async fn from_request_parts(parts: &RequestParts) -> Result<Self> {
        tokio::task::yield_now().await;
        let name = parts.headers().get("x-tenant").and_then(|name| name.to_str().ok());
        let name = name.ok_or_else(|| Error::invalid("missing header x-tenant"))?;
        Ok(Self(name.to_owned()))
    }
}

#[tokio::test]
async fn own_extractor_may_await_and_its_error_reaches_the_client() {
    let runs = Counter::default();
    let server = || {
        let (in_tool, in_prompt) = (runs.clone(), runs.clone());
        let tool = Tool::new("t", "", move |TenantName(name): TenantName, args: Args| {
            in_tool.increment();
            std::future::ready(format!("{name} {}", args.n))
        });
        let prompt = Prompt::new("p", "", move |TenantName(name): TenantName| {
            in_prompt.increment();
            std::future::ready(name)
        });
        let builder = Server::builder("s", "1").allow_anonymous().ephemeral_key();
        builder.tool(tool).prompt(prompt).build().unwrap()
    };
    let headers =
        HeaderMap::from_iter([("x-tenant".parse().unwrap(), HeaderValue::from_static("acme"))]);
    let tool = with_meta(json!({ "name": "t", "arguments": { "n": 7 } }));
    let prompt = with_meta(json!({ "name": "p" }));
    let result = send_with_headers(server(), "tools/call", tool.clone(), headers.clone()).await;
    assert_eq!(result["content"][0]["text"], "acme 7");
    let result = send_with_headers(server(), "prompts/get", prompt.clone(), headers).await;
    assert_eq!(result["messages"][0]["content"]["text"], "acme");
    assert_eq!(runs.get(), 2);

    let result = send_with_headers(server(), "tools/call", tool, HeaderMap::new()).await;
    assert_eq!(result["isError"], true);
    assert_eq!(result["content"][0]["text"], "missing header x-tenant");
    let result = send_with_headers(server(), "prompts/get", prompt, HeaderMap::new()).await;
    let error = json!({ "code": -32602, "message": "missing header x-tenant" });
    assert_eq!(result["error"], error);
    assert_eq!(runs.get(), 2, "the handler must not run without its parameters");
}

/// An extractor runs in every round, with the request of that round.
#[tokio::test]
async fn extraction_runs_once_in_every_round() {
    #[derive(Clone, Default)]
    struct Extractions(Counter);
    struct Counted(usize);
    impl FromRequestParts for Counted {
        async fn from_request_parts(parts: &RequestParts) -> Result<Self> {
            let State(Extractions(counter)) = State::from_request_parts(parts).await?;
            Ok(Self(counter.increment()))
        }
    }
    let tool = Tool::new("t", "", async |Counted(n): Counted, cx: Context| -> Result<_> {
        cx.elicit::<Text>("a", "?").await?;
        cx.elicit::<Text>("b", "?").await?;
        Ok(n.to_string())
    });
    let builder = Server::builder("s", "1").allow_anonymous().ephemeral_key();
    let server = builder.tool(tool).state(Extractions::default()).build().unwrap();
    let client = client(InProcess::new(server)).on_form(async |_, _| {
        Ok(mrtr_schema::elicitation::ElicitResult::accept(json!({ "text": "x" }))?)
    });
    assert_eq!(client.build().call_tool("t", json!({})).await.unwrap().text(), "3");
}

#[tokio::test]
async fn handler_takes_up_to_eight_parameters() {
    #[expect(clippy::too_many_arguments, reason = "eight parameters are what is tested")]
    async fn handler(
        cx: Context,
        State(pool): State<Pool>,
        Extension(tenant): Extension<Tenant>,
        caller: Principal,
        headers: HeaderMap,
        progress: Progress,
        client: Option<Implementation>,
        args: Args,
    ) -> Result<String> {
        progress.report(1.0, None, None);
        let known = cx.parts().client() == client.as_ref();
        Ok(format!(
            "{} {} {} {} {known} {}",
            pool.0,
            tenant.0,
            caller.subject(),
            headers.len(),
            args.n
        ))
    }
    let through = InProcess::new(server(Tool::new("t", "", handler)))
        .with_extension(Tenant("a tenant"))
        .with_extension(alice());
    let text = call_through(through, json!({ "n": 8 })).await;
    assert_eq!(text, "a pool a tenant alice 0 true 8");
}

/// A handler without arguments publishes an empty object as its schema, and accepts nothing else.
#[tokio::test]
async fn handler_without_arguments_accepts_none() {
    let no_parameter = || Tool::new("t", "", async || "ran");
    let only_extractor = || Tool::new("t", "", async |_: State<Pool>| "ran");
    let last_is_an_extractor = || Tool::new("t", "", async |_: Context, _: State<Pool>| "ran");
    for tool in [no_parameter as fn() -> Tool, only_extractor, last_is_an_extractor] {
        assert_eq!(call(tool(), json!({})).await, "ran");
        let text = call(tool(), json!({ "n": 1 })).await;
        assert!(text.starts_with("! Invalid arguments:") && text.contains("`n`"), "{text}");
        let tools = client(InProcess::new(server(tool()))).build().list_tools().await.unwrap();
        let schema = json!({ "type": "object", "additionalProperties": false });
        assert_eq!(Value::Object(tools[0].input_schema.clone()), schema);
    }
}

/// An error type of the author, which chooses the text that the client may read.
#[derive(Debug)]
enum BookingError {
    Full(u8),
    Database(std::io::Error),
}

impl IntoError for BookingError {
    fn into_error(self) -> Error {
        match self {
            Self::Full(people) => Error::new(format!("no table for {people}")),
            Self::Database(error) => Error::internal(error),
        }
    }
}

#[tokio::test]
async fn own_error_type_chooses_its_visible_text() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Booking {
        people: u8,
    }
    let (lines, _guard) = LogLines::collect();
    let book = || {
        Tool::new("t", "", async |booking: Booking| match booking.people {
            0 => Err(BookingError::Database(std::io::Error::other("db-3.internal refused"))),
            people @ 5.. => Err(BookingError::Full(people)),
            people => Ok(format!("a table for {people}")),
        })
    };
    assert_eq!(call(book(), json!({ "people": 2 })).await, "a table for 2");
    assert_eq!(call(book(), json!({ "people": 5 })).await, "! no table for 5");
    let text = call(book(), json!({ "people": 0 })).await;
    assert_eq!(text, "! Something went wrong inside the server.");
    assert!(lines.text().contains("db-3.internal refused"), "{}", lines.text());

    let prompt = Prompt::new("p", "", async || Err::<String, _>(BookingError::Full(9)));
    let builder = Server::builder("s", "1").allow_anonymous().ephemeral_key();
    let server = InProcess::new(builder.prompt(prompt).build().unwrap());
    let error = client(server).build().get_prompt("p", json!({})).await.unwrap_err();
    let error = error.as_server_error().unwrap();
    assert_eq!((error.code, error.message.as_str()), (-32603, "no table for 9"));
}

/// Manual handlers take the same extractors, arguments and errors.
#[tokio::test]
async fn manual_handler_takes_extractors_arguments_and_own_errors() {
    async fn handler(
        State(pool): State<Pool>,
        cx: ManualContext,
        caller: Option<Principal>,
        progress: Progress,
        args: Args,
    ) -> Result<ManualOutput<ToolOutput>, BookingError> {
        progress.report(1.0, None, None);
        if args.n > 9 {
            return Err(BookingError::Full(10));
        }
        Ok(match cx.answers().form::<Text>("a") {
            Some(text) => {
                format!("{} {} {} {}", pool.0, caller.is_some(), args.n, text.text).into()
            }
            None => InputRequired::new().elicit::<Text>("a", "?").into(),
        })
    }
    let tool = || Tool::manual("t", "", handler);
    let answer =
        async |_, _| Ok(mrtr_schema::elicitation::ElicitResult::accept(json!({ "text": "x" }))?);
    let client =
        client(InProcess::new(server(tool())).with_extension(alice())).on_form(answer).build();
    let result = client.call_tool("t", json!({ "n": 1 })).await.unwrap();
    assert_eq!(result.text(), "a pool true 1 x");
    assert_eq!(call(tool(), json!({ "n": 10 })).await, "! no table for 10");
}
