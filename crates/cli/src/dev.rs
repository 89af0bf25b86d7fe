//! Development of a server: builds it, runs it, calls its tools, and reloads it.

mod project;
mod rounds;
mod server;

use std::io::{self, BufRead as _, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use mrtr::client::{CallEvent, InputContext};
use mrtr::schema::elicitation::{ElicitAction, ElicitParams, FormParams};
use mrtr::schema::form::FormSchema;
use mrtr::schema::tool::Tool;
use mrtr::terminal::{self, sanitize_line};
use mrtr::{Client, KeyRing, development};
use serde_json::value::to_raw_value;
use serde_json::{Map, Value};

use self::project::Project;
use self::server::{DevServer, Reload};
use crate::answers::Answers;
use crate::discover::show_tool;
use crate::failure::{Failure, Result};
use crate::interactive;
use crate::options::Dev;
use crate::output::{self, bold, dim};
use crate::server_info::server_info;

/// The time between two looks at the source.
const INTERVAL: Duration = Duration::from_millis(300);

/// The time that a server has to say what it offers, after its start.
const PATIENCE: Duration = Duration::from_secs(10);

const HELP: &str = "\
TOOL                  calls a tool; asks for its arguments in a form
TOOL people=4 at=bar  calls a tool with these arguments; values cannot contain spaces
TOOL {\"people\": 4}    calls a tool with a JSON object
tools                 lists the tools and their arguments
quit                  stops the server and exits";

pub(crate) async fn run(options: &Dev) -> Result<ExitCode> {
    let answers = options.answers.as_deref().map(Answers::read).transpose()?.unwrap_or_default();
    let secret = mrtr_codec::Secret::generate().map_err(Failure::usage)?;
    let keys = format!("active {}", *secret.to_base64url());
    let ring = Arc::new(development::key_ring(&keys).map_err(Failure::usage)?);
    let server = DevServer::start(Project::new(options), options.args.clone(), keys)?;
    let session = Session { server, answers, ring };
    session.introduce().await;
    explain();
    // For scripts, which pass commands through a pipe.
    let is_script = !io::stdin().is_terminal();
    let mut first_failure = None;
    while let Some(line) = session.next_line().await {
        let line = line.trim();
        let done = match line.split_once(char::is_whitespace).unwrap_or((line, "")) {
            ("", _) => Ok(()),
            ("quit" | "exit", "") => break,
            ("help" | "?", "") => {
                output::line(HELP);
                Ok(())
            }
            ("tools", "") => session.show_tools().await,
            (tool, arguments) => session.call(tool, arguments.trim()).await,
        };
        if let Err(Failure { code, message }) = done {
            output::note(&terminal::sanitize(&message));
            first_failure = first_failure.or(Some(code));
        }
    }
    session.server.shutdown().await;
    Ok(first_failure.filter(|_| is_script).map_or(ExitCode::SUCCESS, ExitCode::from))
}

struct Session {
    server: DevServer,
    answers: Answers,
    /// The keys of the server.
    ring: Arc<KeyRing>,
}

impl Session {
    /// Returns the next line of standard input, or `None` at its end. Reloads the server meanwhile.
    async fn next_line(&self) -> Option<String> {
        prompt();
        let mut line = tokio::task::spawn_blocking(|| {
            let mut line = Vec::new();
            let read = io::stdin().lock().read_until(b'\n', &mut line);
            read.ok().filter(|length| *length > 0)?;
            Some(String::from_utf8_lossy(&line).into_owned())
        });
        loop {
            if let Ok(line) = tokio::time::timeout(INTERVAL, &mut line).await {
                return line.ok().flatten();
            }
            match self.server.reload().await {
                Reload::Unchanged => continue,
                Reload::Failed => {}
                Reload::Replaced => self.introduce().await,
            }
            prompt();
        }
    }

    /// Returns a client for one call of a tool with these arguments, as JSON.
    ///
    /// The client of another call would have lists from before a change.
    fn client(&self, arguments: String) -> Client<DevServer> {
        let client = Client::builder(self.server.clone()).exclude_handler_time();
        let client =
            interactive::answer(client, self.server.name().to_owned(), self.answers.clone());
        let (ring, server) = (Arc::clone(&self.ring), self.server.clone());
        let show = move |event: CallEvent<'_>| {
            if let CallEvent::RequestFinished { request, elapsed, outcome, .. } = event {
                let time = elapsed.saturating_sub(server.take_reload_time());
                if let Ok(result) = outcome {
                    rounds::show(request, time, result, &ring, &arguments);
                }
            }
        };
        client.on_event(show).build()
    }

    /// Prints what the server says about itself.
    async fn introduce(&self) {
        // The time for a build is not the server's.
        self.server.reload().await;
        let client = self.client(String::new());
        let told = async {
            let found = client.discover().await?;
            Result::Ok((server_info(&found), client.list_tools().await?))
        };
        let told = tokio::time::timeout(PATIENCE, told).await.unwrap_or_else(|_| {
            Err(Failure::usage(format!("the server has not answered for {PATIENCE:?}")))
        });
        match told {
            Ok((info, tools)) => {
                let name = info.map(|info| format!("{} {}", info.name, info.version));
                let names: Vec<_> = tools.iter().map(|tool| sanitize_line(&tool.name)).collect();
                output::note(&format!(
                    "{}: {}",
                    bold(&sanitize_line(&name.unwrap_or_else(|| self.server.name().to_owned()))),
                    if names.is_empty() { "no tools".to_owned() } else { names.join(", ") }
                ));
            }
            Err(Failure { message, .. }) => {
                output::note(&terminal::sanitize(&message));
                output::note(
                    "It must call `mrtr::serve` or `mrtr::serve_stdio`, or speak MCP over standard input and output. Arguments for it go after `--`.",
                );
            }
        }
    }

    async fn show_tools(&self) -> Result<()> {
        let tools = self.client(String::new()).list_tools().await?;
        tools.iter().for_each(show_tool);
        Ok(())
    }

    async fn call(&self, tool: &str, arguments: &str) -> Result<()> {
        let arguments = match arguments {
            "" => to_raw_value(&self.ask_arguments(tool).await?).map_err(Failure::usage)?,
            json if json.starts_with('{') => interactive::arguments_object(json)
                .map_err(|reason| Failure::usage(format!("arguments: {reason}")))?,
            named => interactive::named_arguments(named.split_whitespace())?,
        };
        let client = self.client(arguments.get().to_owned());
        let result = client.call_tool(tool, arguments).await?;
        interactive::show_result(&result);
        if result.is_error {
            return Err(Failure { code: 1, message: "The tool failed.".to_owned() });
        }
        Ok(())
    }

    /// Asks for the arguments of a tool in a form, if it has any that a form can have.
    async fn ask_arguments(&self, name: &str) -> Result<Map<String, Value>> {
        let tools = self.client(String::new()).list_tools().await?;
        let Some(tool) = tools.iter().find(|tool| tool.name == name) else {
            return Err(Failure::usage(format!("the server has no tool {name:?}")));
        };
        if !has_arguments(tool) || !terminal::is_available() {
            return Ok(Map::new());
        }
        let schema = form(tool).ok_or_else(|| {
            Failure::usage("the arguments of this tool do not fit a form: pass a JSON object")
        })?;
        let form = ElicitParams::Form(FormParams::new("Arguments", schema));
        let context = InputContext::new("tools/call", name, "arguments", 1);
        let answer = terminal::elicit(self.server.name(), &context, form).await;
        let answer = answer.map_err(Failure::usage)?;
        match answer.action {
            ElicitAction::Accept => Ok(answer.content.unwrap_or_default()),
            _ => Err(Failure::usage("not called")),
        }
    }
}

fn has_arguments(tool: &Tool) -> bool {
    let properties = tool.input_schema.get("properties").and_then(Value::as_object);
    properties.is_some_and(|properties| !properties.is_empty())
}

/// Returns a form for the arguments of a tool, if a form can have them all.
fn form(tool: &Tool) -> Option<FormSchema> {
    let schema = serde_json::to_value(&tool.input_schema).ok()?;
    serde_json::from_value(schema).ok()
}

fn prompt() {
    if io::stdin().is_terminal() {
        output::prompt("> ");
    }
}

fn explain() {
    if io::stdin().is_terminal() {
        output::note(&dim("Type a tool's name to call it, `help` for help, or `quit` to exit."));
    }
}
