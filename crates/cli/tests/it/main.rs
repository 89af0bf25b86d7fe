//! The program as a process: its output, its exit codes, and its prompts at a terminal.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[cfg(target_os = "linux")]
mod at_a_terminal;
mod bundle;
#[cfg(unix)]
mod dev;
mod gateway;
mod install;
mod new;
mod output;

use std::io::{BufRead as _, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use mrtr::auth::resource::{IntrospectionIssuer, ProtectedResource};
use mrtr::http::{Endpoint, ServeOptions};
use mrtr::schema::content::{ContentBlock, EmbeddedResource, MediaContent, ResourceContents};
use mrtr::{Context, Error, KeyRing, Result, Server, SharedKeyRing, Tool};
use mrtr_testkit::Issuer;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[derive(Deserialize, JsonSchema)]
struct Booking {
    /// Number of guests
    people: u8,
}

#[derive(Deserialize, JsonSchema)]
struct Seat {
    /// Inside or outside?
    place: Place,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Place {
    Inside,
    Outside,
}

#[derive(Deserialize, JsonSchema)]
struct Guest {
    /// Name of the guest
    #[schemars(length(min = 2), extend("default" = "\u{1b}]52;c;aGk=\u{7}"))]
    name: String,
}

async fn book(cx: Context, Booking { people }: Booking) -> Result<String> {
    if people > 8 {
        return Err(Error::new("The largest table has 8 seats."));
    }
    cx.progress(1.0, Some(2.0), Some("half"));
    let Seat { place } = cx.elicit("seat", "Where, \u{1b}[31mplease\u{1b}[0m?").await?;
    let Guest { name } = cx.elicit("guest", "Who?").await?;
    cx.elicit_url("page", "Confirm it there.", "https://booking.example/confirm?x=1").await?;
    Ok(format!("A table {place:?} for {people}: {name}."))
}

/// Starts a server with [`book`].
fn serve() -> String {
    serve_tool(|| Tool::new("book", "Books a table", book))
}

/// Starts a server that runs until the process ends, and returns its URL.
fn serve_tool(tool: impl FnOnce() -> Tool + Send + 'static) -> String {
    let (send, url) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ring = SharedKeyRing::new(KeyRing::ephemeral().unwrap());
            let server = Server::builder("booking", "1.0.0").sealer(ring).allow_anonymous();
            let server = server.tool(tool());
            let endpoint = Endpoint::new(server.build().unwrap());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            send.send(format!("http://{}/mcp", listener.local_addr().unwrap())).unwrap();
            let forever = std::future::pending();
            mrtr::http::serve(listener, endpoint, ServeOptions::default(), forever).await.unwrap();
        });
    });
    url.recv().unwrap()
}

/// Starts a server behind OAuth, and its authorization server.
fn serve_protected() -> (String, Arc<Issuer>) {
    let (send, started) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/mcp", listener.local_addr().unwrap());
            let issuer = Issuer::start(&*url).await.unwrap();
            let introspection = IntrospectionIssuer::new(issuer.url(), "server", "secret");
            let resource = ProtectedResource::builder(&*url).issuer(introspection);
            let resource = resource.scopes(["booking:read"]).build().unwrap();
            let ring = SharedKeyRing::new(KeyRing::ephemeral().unwrap());
            let tool = Tool::new("hold", "Holds a table", async || "held");
            let tool = tool.requires_scope("booking:hold");
            let server =
                Server::builder("booking", "1").sealer(ring).require_principal().tool(tool);
            let service = resource.protect(Endpoint::new(server.build().unwrap()));
            let options = ServeOptions::default().with_metadata_path(resource.metadata_path());
            send.send((url, issuer)).unwrap();
            mrtr::http::serve(listener, service, options, std::future::pending()).await.unwrap();
        });
    });
    started.recv().unwrap()
}

/// Starts a server that turns each call into a task with one question, and returns its URL. The
/// task is complete when the question is answered.
fn serve_task() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut answered = Value::Null;
        for stream in listener.incoming() {
            let mut stream = std::io::BufReader::new(stream.unwrap());
            let (mut length, mut line) = (0, String::new());
            while stream.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            // The client may have given up, before its request or in it.
            if length == 0 || stream.read_exact(&mut body).is_err() {
                continue;
            }
            let request: Value = serde_json::from_slice(&body).unwrap();
            let mut task = json!({ "resultType": "complete", "taskId": "t1", "status": "working",
                "createdAt": "2026-11-24T10:30:00Z", "lastUpdatedAt": "2026-11-24T10:30:00Z",
                "ttlMs": null, "pollIntervalMs": 100 });
            let params = &request["params"];
            let mut error = Value::Null;
            let result = match request["method"].as_str().unwrap() {
                "server/discover" => {
                    json!({ "supportedVersions": ["2026-07-28"], "capabilities": {} })
                }
                "tools/call" => {
                    if params["name"] == "endless" || params["name"] == "refused" {
                        answered = params["name"].clone();
                    }
                    task["resultType"] = json!("task");
                    task
                }
                "tasks/get" if answered == "cancelled" => {
                    task["status"] = json!("cancelled");
                    task
                }
                "tasks/get" if answered == "endless" => task,
                "tasks/get" if answered == "refused" => {
                    error = json!({ "code": -32603, "message": "the store is down" });
                    Value::Null
                }
                "tasks/get" if answered.is_null() => {
                    let form = json!({ "type": "object", "properties": { "year": { "type": "integer" } } });
                    task["status"] = json!("input_required");
                    task["inputRequests"] = json!({ "year": { "method": "elicitation/create",
                        "params": { "message": "Which year?", "requestedSchema": form } } });
                    task["statusMessage"] = json!("waits for you\n");
                    task
                }
                "tasks/get" => {
                    let text = format!("The report of {answered}.");
                    task["status"] = json!("completed");
                    task["result"] = json!({ "content": [{ "type": "text", "text": text }] });
                    task
                }
                method => {
                    answered = match method {
                        "tasks/cancel" => json!("cancelled"),
                        _ => params["inputResponses"]["year"]["content"]["year"].clone(),
                    };
                    json!({ "resultType": "complete" })
                }
            };
            let mut body = json!({ "jsonrpc": "2.0", "id": request["id"] });
            let name = if error.is_null() { "result" } else { "error" };
            body[name] = if error.is_null() { result } else { error };
            let body = body.to_string();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
            let length = body.len();
            let _ = write!(stream.get_mut(), "{head}\r\nContent-Length: {length}\r\n\r\n{body}");
        }
    });
    url
}

/// Creates a directory for one test.
fn scratch(name: &str) -> PathBuf {
    let scratch = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&scratch).unwrap();
    scratch
}

fn mrtr(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_mrtr");
    Command::new(program).args(args).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)))
}

const ANSWERS: &str = r#"{ "seat": { "place": "outside" }, "guest": { "name": "Ada" }, "page": { "action": "accept" } }"#;

#[test]
fn discover_and_tools_describe_the_server() {
    let url = serve();
    let tools = json_of(&mrtr(&["tools", &url, "--json"]));
    assert_eq!(tools.as_array().unwrap().len(), 1);
    assert_eq!(tools[0]["name"], "book");
    let tools = text(&mrtr(&["tools", &url]).stdout);
    assert_eq!(tools, "book\n  Books a table\n  people integer Number of guests\n");
    let found = json_of(&mrtr(&["discover", &url, "--json"]));
    assert_eq!(found["supportedVersions"], json!(["2026-07-28"]));
    assert!(text(&mrtr(&["discover", &url]).stdout).starts_with("booking 1.0.0\n"));
}

#[test]
fn call_is_answered_from_a_file_or_paused_and_resumed() {
    let (url, scratch) = (serve(), scratch("answers"));
    let file = |name: &str| scratch.join(name).to_str().unwrap().to_owned();
    let (answers, first, second) = (file("answers.json"), file("first.json"), file("second.json"));
    std::fs::write(&answers, ANSWERS).unwrap();
    let call = ["call", &url, "book", "--arg", "people=2", "--answers", &answers];
    let done = mrtr(&call);
    assert_eq!(text(&done.stdout), "A table Outside for 2: Ada.\n", "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains(" 50 % half"), "{}", text(&done.stderr));
    let traced = text(&mrtr(&[&call[..], &["--trace"]].concat()).stderr);
    assert!(traced.contains("→ 1 tools/call book") && traced.contains("asks seat"), "{traced}");
    assert_eq!(json_of(&mrtr(&[&call[..], &["--json"]].concat()))["content"][0]["type"], "text");

    let paused = mrtr(&["call", &url, "book", "--arg", "people=3", "--pause", &first]);
    assert_eq!(paused.status.code(), Some(5));
    assert!(text(&paused.stdout).starts_with("seat: Where, \u{fffd}[31mplease"), "{paused:?}");
    let resume = ["call", &url, "--answers", &answers, "--resume"];
    let again = mrtr(&[&resume[..], &[&first, "--pause", &second]].concat());
    assert_eq!((again.status.code(), text(&again.stdout).as_str()), (Some(5), "guest: Who?\n"));
    let done = mrtr(&[&resume[..], &[&second]].concat());
    assert_eq!(text(&done.stdout), "A table Outside for 3: Ada.\n");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&first).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "only the owner may read the suspended call");
    }
}

#[test]
fn task_is_left_resumed_and_cancelled() {
    let (url, scratch) = (serve_task(), scratch("task"));
    let file = |name: &str| scratch.join(name).to_str().unwrap().to_owned();
    let (answers, first, second) = (file("answers.json"), file("first.json"), file("second.json"));
    std::fs::write(&answers, r#"{ "year": { "year": 2026 } }"#).unwrap();
    let arguments = ["call", &url, "report"];
    let started = mrtr(&[&arguments[..], &["--detach", &first]].concat());
    assert_eq!((started.status.code(), text(&started.stdout).as_str()), (Some(5), ""));
    let stderr = text(&started.stderr);
    assert!(stderr.contains("task working") && stderr.contains("The running call"), "{stderr}");
    let stored: Value = serde_json::from_str(&std::fs::read_to_string(&first).unwrap()).unwrap();
    assert_eq!(stored["task"]["taskId"], "t1");

    let asks = mrtr(&["call", &url, "--resume", &first, "--detach", &second]);
    assert_eq!((asks.status.code(), text(&asks.stdout).as_str()), (Some(5), "year: Which year?\n"));
    let stderr = text(&asks.stderr);
    assert!(stderr.contains("task input_required: waits for you"), "{stderr}");
    let paused = mrtr(&[&arguments[..], &["--pause", &second]].concat());
    assert_eq!(text(&paused.stdout), "year: Which year?\n", "a pause is at the question");
    let done = mrtr(&["call", &url, "--resume", &second, "--answers", &answers]);
    assert_eq!(text(&done.stdout), "The report of 2026.\n", "{}", text(&done.stderr));
    let at_once = mrtr(&arguments);
    assert_eq!(text(&at_once.stdout), "The report of 2026.\n", "{}", text(&at_once.stderr));

    let cancelled = mrtr(&["cancel", &url, &first]);
    assert_eq!(cancelled.status.code(), Some(0), "{}", text(&cancelled.stderr));
    let gone = mrtr(&["call", &url, "--resume", &first]);
    assert_eq!(gone.status.code(), Some(3));
    assert!(text(&gone.stderr).contains("the task was cancelled"), "{}", text(&gone.stderr));
    let mut stored = stored;
    stored["task"] = Value::Null;
    stored["mrtrContinuation"] = json!(1);
    stored["requestState"] = json!("sealed");
    std::fs::write(&first, stored.to_string()).unwrap();
    let nothing = mrtr(&["cancel", &url, &first]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(text(&nothing.stderr).contains("not a task"), "{}", text(&nothing.stderr));
}

/// The server continues with the task: without the file, nothing would be known of it.
#[test]
fn task_that_takes_longer_than_the_timeout_can_be_resumed() {
    let (url, scratch) = (serve_task(), scratch("endless"));
    let file = scratch.join("task.json").to_str().unwrap().to_owned();
    let late = mrtr(&["call", &url, "endless", "--timeout", "1", "--pause", &file]);
    let stderr = text(&late.stderr);
    assert_eq!(late.status.code(), Some(5), "{stderr}");
    assert!(
        stderr.contains("not ended within 1 s") && stderr.contains("The running call"),
        "{stderr}"
    );
    let cancelled = mrtr(&["cancel", &url, &file]);
    assert_eq!(cancelled.status.code(), Some(0), "{}", text(&cancelled.stderr));
}

#[test]
fn task_can_be_resumed_after_a_request_about_it_was_refused() {
    let (url, scratch) = (serve_task(), scratch("refused"));
    let file = scratch.join("task.json").to_str().unwrap().to_owned();
    let refused = mrtr(&["call", &url, "refused", "--pause", &file]);
    let stderr = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(5), "{stderr}");
    assert!(
        stderr.contains("the store is down") && stderr.contains("The running call"),
        "{stderr}"
    );
    let cancelled = mrtr(&["cancel", &url, &file]);
    assert_eq!(cancelled.status.code(), Some(0), "{}", text(&cancelled.stderr));
}

#[test]
fn result_shows_all_content_and_arguments_keep_their_digits() {
    let url = serve_tool(|| {
        #[derive(Deserialize, JsonSchema)]
        struct Arguments {
            amount: u128,
        }
        Tool::new("show", "Shows an amount", async |Arguments { amount }: Arguments| {
            let page = ResourceContents::text("file:///page", "its text");
            vec![
                ContentBlock::text(amount.to_string()),
                ContentBlock::Image(MediaContent::new("AAAA", "image/png")),
                ContentBlock::Resource(EmbeddedResource::new(page)),
            ]
        })
    });
    let amount = "123456789012345678901234567890";
    let object = format!(r#"{{"amount":{amount}}}"#);
    for arguments in [["--arg", &format!("amount={amount}")], ["--arguments", &object]] {
        let shown = mrtr(&[&["call", &url, "show"], &arguments[..]].concat());
        let expected =
            format!("{amount}\n[image: image/png]\n[resource: file:///page]\nits text\n");
        assert_eq!(text(&shown.stdout), expected, "{}", text(&shown.stderr));
    }
}

/// Checks the exit codes that the help documents.
#[test]
fn failures_have_an_exit_code_and_a_reason() {
    let (url, scratch) = (serve(), scratch("wrong"));
    let file = |name: &str, text: &str| {
        let file = scratch.join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (list, wrong) =
        (file("list.json", "[]"), file("wrong.json", r#"{ "seat": { "place": "up" } }"#));
    let missing = scratch.join("missing.json").to_str().unwrap().to_owned();
    let two = ["call", &url, "book", "--arg", "people=2"];
    let with = |more: &[&'static str], file: &str| -> Vec<String> {
        let all = two.iter().chain(more).map(|arg| (*arg).to_owned());
        all.chain((!file.is_empty()).then(|| file.to_owned())).collect()
    };
    let of = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
    for (args, code, why) in [
        (of(&["call", &url, "book", "--arg", "people=9"]), 1, ""),
        (of(&["call", &url, "book", "--arg", "people=many"]), 1, ""),
        (of(&["call", &url]), 2, "<TOOL>"),
        (of(&["call", "ftp://x", "book"]), 2, "scheme"),
        (of(&["call", &url, "book", "--arg", "people"]), 2, "NAME=VALUE"),
        (of(&["call", &url, "book", "--arguments", "[]"]), 2, "expected a JSON object"),
        (of(&["call", &url, "--resume", &missing]), 2, "missing.json"),
        (of(&["call", &url, "--resume", &list]), 2, "list.json"),
        (of(&["tools", &url, "--token-env", "MRTR_UNSET_VARIABLE"]), 2, "is not set"),
        (with(&["--answers"], &list), 2, "expected a JSON object of answers"),
        (of(&["call", &url, "nosuch"]), 3, "Unknown tool"),
        (of(&["tools", "http://127.0.0.1:1/mcp"]), 4, "cannot be reached"),
        (with(&[], ""), 5, "no answer to \"seat\": not in --answers, and no terminal"),
        (with(&["--answers"], &wrong), 5, "does not match its form"),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = mrtr(&args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(why), "{args:?}: {stderr}");
    }
}

#[test]
fn keygen_prints_a_line_of_a_key_ring() {
    let line = text(&mrtr(&["keygen", "staged"]).stdout);
    let made = json_of(&mrtr(&["keygen", "--json"]));
    assert!(line.starts_with("staged ") && line.trim().len() == "staged ".len() + 43, "{line}");
    assert_eq!(made["state"], "active");
    let ring = format!("active {}\n{line}", made["secret"].as_str().unwrap());
    KeyRing::from_text("https://booking.example", &ring).unwrap();
}

#[test]
fn user_logs_in_and_out() {
    let (url, issuer) = serve_protected();
    let home = scratch("login");
    let _ = std::fs::remove_dir_all(&home);
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mrtr"));
        command.args(args).env("XDG_STATE_HOME", &home).stdin(Stdio::null()).output().unwrap()
    };
    let refused = run(&["tools", &url]);
    assert_eq!(refused.status.code(), Some(6));
    assert!(text(&refused.stderr).contains("demands a login"), "{}", text(&refused.stderr));
    assert_eq!(run(&["whoami", &url]).status.code(), Some(6));

    // The user visits the page, and pastes the callback.
    let mut login = Command::new(env!("CARGO_BIN_EXE_mrtr"))
        .args(["login", &url, "--no-browser"])
        .env("XDG_STATE_HOME", &home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut shown = String::new();
    let mut output = std::io::BufReader::new(login.stderr.take().unwrap());
    while !shown.contains("Then paste") {
        assert_ne!(output.read_line(&mut shown).unwrap(), 0, "{shown}");
    }
    assert!(shown.contains("wants you to log in at"), "{shown}");
    let page = shown.lines().find(|line| line.contains("/authorize?")).unwrap().trim().to_owned();
    let callback = issuer.consent(&page);
    let mut input = login.stdin.take().unwrap();
    writeln!(input, "http://127.0.0.1:7777/callback?code=x&state=other\n{callback}").unwrap();
    let done = login.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("scopes    booking:read"), "{}", text(&done.stdout));

    let who = json_of(&run(&["whoami", &url, "--json"]));
    assert_eq!((&who["issuer"], &who["clientId"]), (&json!(issuer.url()), &json!("app")));
    assert!(text(&run(&["tools", &url]).stdout).starts_with("hold\n"));
    // Without a terminal, the user cannot be asked for the further scope.
    let refused = run(&["call", &url, "hold"]);
    assert_eq!(refused.status.code(), Some(6), "{}", text(&refused.stderr));
    let out = text(&run(&["logout", &url]).stdout);
    assert!(out.ends_with(": logged out\n"), "{out}");
    assert_eq!(run(&["tools", &url]).status.code(), Some(6));
    // No token is in any output, nor in a file after the logout.
    let kept = std::fs::read_dir(home.join("mrtr/sessions")).unwrap();
    let files: Vec<_> = kept.map(|file| file.unwrap().path()).collect();
    assert!(files.iter().all(|file| file.extension().is_some_and(|e| e == "lock")), "{files:?}");
}
