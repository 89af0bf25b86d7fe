//! `mrtr`: calls Model Context Protocol servers from the command line, and answers what they ask.

mod answers;
mod call;
mod discover;
mod output;

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use mrtr::http::HttpClient;
use mrtr::{CallError, Client, ClientBuilder};

/// Calls Model Context Protocol servers (2026-07-28), and answers what they ask.
///
/// Exit codes: 0 it went well; 1 the tool says that it failed; 2 wrong usage, or a file that cannot be used; 3 the server
/// refused, or broke the protocol; 4 the server was not reached, or time was up; 5 the call stands at a question.
#[derive(Parser)]
#[command(name = "mrtr", version, max_term_width = 100)]
struct Options {
    #[command(subcommand)]
    command: Command,
    /// Prints results as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// What a server is, and what it can do
    Discover(Server),
    /// Lists a server's tools
    Tools(Server),
    /// Calls a tool, and answers what it asks
    Call(Call),
    /// Makes a secret that seals state, as a line for a key ring
    Keygen {
        /// `active` seals; `staged` only opens, until all replicas have it
        #[arg(default_value = "active", value_parser = ["active", "staged"])]
        state: String,
    },
}

/// Where the server is, and who calls.
#[derive(Args)]
struct Server {
    /// The URL of its MCP endpoint
    url: String,
    /// An environment variable that holds a bearer token
    #[arg(long, value_name = "VARIABLE")]
    token_env: Option<String>,
    /// How long the whole call may take, in seconds, without the time that you take
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u64,
}

#[derive(Args)]
struct Call {
    #[command(flatten)]
    server: Server,
    /// The tool; not with --resume
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    tool: Option<String>,
    /// An argument: `people=2`, or `day=Friday`; what reads as JSON is JSON, and all else is text
    #[arg(long = "arg", value_name = "NAME=VALUE", conflicts_with = "resume")]
    args: Vec<String>,
    /// All arguments, as a JSON object
    #[arg(long, value_name = "JSON", conflicts_with_all = ["args", "resume"])]
    arguments: Option<String>,
    /// Answers, as a JSON object: for each question's key the contents of its form, or {"action": …}
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,
    /// Writes the call to a file when it asks, and ends
    #[arg(long, value_name = "FILE")]
    pause: Option<PathBuf>,
    /// Goes on with a call from such a file
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Shows every request and its outcome
    #[arg(long)]
    trace: bool,
}

/// Why it did not go well, as an exit code and what to say.
struct Failure {
    code: u8,
    why: String,
}

type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    fn usage(why: impl fmt::Display) -> Self {
        Self { code: 2, why: why.to_string() }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let code = if error.is_handler() {
            5
        } else if error.as_server_error().is_some()
            || error.is_protocol()
            || error.is_too_many_rounds()
        {
            3
        } else if error.as_transport_error().is_some() || error.is_timeout() {
            4
        } else {
            2
        };
        let mut why = error.to_string();
        let mut source = error.as_transport_error().and_then(std::error::Error::source);
        while let Some(cause) = source {
            why = format!("{why}: {cause}");
            source = cause.source();
        }
        Self { code, why }
    }
}

impl Server {
    /// A client of it; `asks` if questions may come.
    fn client(&self) -> Result<ClientBuilder<HttpClient>> {
        let mut http = HttpClient::builder(&self.url);
        if let Some(name) = &self.token_env {
            let token = std::env::var(name).map_err(|_| {
                Failure::usage(format!("the environment variable {name} is not set"))
            })?;
            http = http.bearer(&token).map_err(Failure::usage)?;
        }
        let time = std::time::Duration::from_secs(self.timeout);
        let http = http.timeout(time).build().map_err(Failure::usage)?;
        let info =
            mrtr::schema::capabilities::Implementation::new("mrtr-cli", env!("CARGO_PKG_VERSION"));
        let client = Client::builder(http).info(info).exclude_handler_time();
        Ok(client.call_timeout(time))
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::note(&format!("mrtr: {error}"));
            return ExitCode::from(4);
        }
    };
    let done = runtime.block_on(async {
        match &options.command {
            Command::Discover(server) => discover::discover(server, options.json).await,
            Command::Tools(server) => discover::tools(server, options.json).await,
            Command::Call(call) => call::run(call, options.json).await,
            Command::Keygen { state } => keygen(state, options.json),
        }
    });
    // A question that nobody waits for any more may still stand at the terminal.
    runtime.shutdown_background();
    match done {
        Ok(code) => code,
        Err(Failure { code, why }) => {
            output::note(&format!("mrtr: {}", mrtr::terminal::sanitize(&why)));
            ExitCode::from(code)
        }
    }
}

fn keygen(state: &str, json: bool) -> Result<ExitCode> {
    let secret = mrtr_codec::Secret::generate()
        .map_err(|error| Failure { code: 1, why: error.to_string() })?;
    let secret = secret.to_base64url();
    if json {
        output::json(&serde_json::json!({ "state": state, "secret": *secret }));
    } else {
        output::line(&format!("{state} {}", *secret));
    }
    Ok(ExitCode::SUCCESS)
}
