//! The options of the command line, and the client that they describe.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Calls Model Context Protocol servers (2026-07-28 and legacy revisions), and answers their
/// questions.
///
/// Exit codes: 0 success; 1 the tool or the build failed, or standard output
/// cannot be written; 2 wrong usage, or an unusable file; 3 the
/// server rejected the request, cancelled the task, or violated the protocol; 4 the server is
/// unreachable, or the timeout expired; 5 a question has no valid answer, or the call was paused or
/// detached; 6 a login is needed, or has failed; 129, 130 and 143 ended by SIGHUP, by Ctrl-C
/// (SIGINT) and by SIGTERM.
#[derive(Parser)]
#[command(name = "mrtr", version, max_term_width = 100)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Prints results as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Prints a server's name, versions and capabilities
    Discover(Server),
    /// Lists a server's tools
    Tools(Server),
    /// Calls a tool, and answers its questions; waits if the server makes the call a task
    Call(Call),
    /// Asks the server to cancel the task in a file that --detach or --pause wrote
    Cancel(Cancel),
    /// Logs in at the authorization server of an MCP server
    Login(Login),
    /// Deletes the stored tokens, and asks the authorization server to revoke them
    Logout {
        /// URL of the server's MCP endpoint
        url: String,
    },
    /// Shows the stored login of a server; exits with code 6 if there is none
    Whoami {
        /// URL of the server's MCP endpoint
        url: String,
    },
    /// Serves the tools, prompts and resources of several servers as one server
    Gateway(Gateway),
    /// Runs the server of a cargo project, reloads it when its source changes, calls its tools, and
    /// shows what each round has recorded
    Dev(Dev),
    /// Creates the project of a server, with a tool that asks a question, and its test
    New {
        /// Folder of the project; its last part is the name of the package
        path: PathBuf,
    },
    /// Adds a server to the configuration of a host, after showing the change
    Install(Install),
    /// Makes an MCPB bundle of a built server, which hosts install with its settings
    Bundle(Bundle),
    /// Prints the `server.json` that describes a server to the MCP registry
    ServerJson(ServerJson),
    /// Generates a secret that seals request state, and prints it as a line of a key ring
    Keygen {
        /// `active` seals and opens; `staged` only opens, until all replicas have the key
        #[arg(default_value = "active", value_parser = ["active", "staged"])]
        state: String,
    },
}

/// The server's URL, and the options of its client.
#[derive(Args)]
pub(crate) struct Server {
    /// URL of the server's MCP endpoint
    pub(crate) url: String,
    /// Environment variable that contains a bearer token
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) token_env: Option<String>,
    /// Timeout of the whole call, in seconds, not counting the time that you take to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(crate) timeout: u64,
}

#[derive(Args)]
pub(crate) struct Login {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Scope to ask for in addition to those that the server names
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(crate) scopes: Vec<String>,
    /// Authorization server at which --client-id is registered
    #[arg(long, value_name = "URL", requires = "client_id")]
    pub(crate) issuer: Option<String>,
    /// ID of a client that was registered beforehand, with the redirect URI
    /// http://127.0.0.1/callback (--no-browser: http://127.0.0.1:7777/callback)
    #[arg(long, value_name = "ID", requires = "issuer")]
    pub(crate) client_id: Option<String>,
    /// Environment variable that contains the client's secret
    #[arg(long, value_name = "VARIABLE", requires = "client_id")]
    pub(crate) client_secret_env: Option<String>,
    /// Authorization server that supports PKCE, though its metadata does not say so
    #[arg(long, value_name = "URL")]
    pub(crate) trust_for_pkce: Vec<String>,
    /// Prints the page's URL, and reads the callback's URL, instead of opening a browser
    #[arg(long)]
    pub(crate) no_browser: bool,
}

#[derive(Args)]
pub(crate) struct Call {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Name of the tool; not with --resume
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub(crate) tool: Option<String>,
    /// One argument: `people=2` or `day=Friday`; a value that is not JSON is text
    #[arg(long = "arg", value_name = "NAME=VALUE", conflicts_with = "resume")]
    pub(crate) args: Vec<String>,
    /// All arguments as a JSON object
    #[arg(long, value_name = "JSON", conflicts_with_all = ["args", "resume"])]
    pub(crate) arguments: Option<String>,
    /// Answers as a JSON object: for each question's key, the content of its form, or {"action": …}
    #[arg(long, value_name = "FILE")]
    pub(crate) answers: Option<PathBuf>,
    /// Writes the call to a file at its next question, or if the server has made it a task that
    /// takes longer than the timeout, and exits with code 5
    #[arg(long, value_name = "FILE")]
    pub(crate) pause: Option<PathBuf>,
    /// Writes the call to a file when the server makes it a task, or at its next question, and
    /// exits with code 5
    #[arg(long, value_name = "FILE", conflicts_with = "pause")]
    pub(crate) detach: Option<PathBuf>,
    /// Continues the call in a file that --pause or --detach wrote
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Shows every request and its outcome
    #[arg(long)]
    pub(crate) trace: bool,
}

#[derive(Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    pub(crate) server: Server,
    /// File with the call
    pub(crate) file: PathBuf,
}

#[derive(Args)]
pub(crate) struct Gateway {
    /// JSON file with the servers as `mcpServers`, as in the configuration of hosts; `${NAME}` is
    /// an environment variable
    pub(crate) file: PathBuf,
    /// Loopback address to serve HTTP at, instead of standard input and output; the key ring in
    /// the environment variable MRTR_KEYS, if it is set, seals paused calls
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
}

#[derive(Args)]
pub(crate) struct Dev {
    /// Package to build, in a workspace
    #[arg(long, short, value_name = "NAME")]
    pub(crate) package: Option<String>,
    /// Binary to run, if there are several
    #[arg(long, value_name = "NAME", conflicts_with = "example")]
    pub(crate) bin: Option<String>,
    /// Example to run instead of a binary
    #[arg(long, value_name = "NAME")]
    pub(crate) example: Option<String>,
    /// Features to enable, separated by commas
    #[arg(long, value_name = "NAMES")]
    pub(crate) features: Option<String>,
    /// Answers as a JSON object: for each question's key, the content of its form, or {"action": …}
    #[arg(long, value_name = "FILE")]
    pub(crate) answers: Option<PathBuf>,
    /// Arguments to pass to the server, which must call `mrtr::serve`, or speak MCP over standard
    /// input and output
    #[arg(last = true)]
    pub(crate) args: Vec<String>,
}

#[derive(Args)]
pub(crate) struct Install {
    /// Host whose configuration is changed
    pub(crate) host: Host,
    /// Name of the server; an entry with this name is replaced
    pub(crate) name: String,
    /// URL of the server's MCP endpoint, instead of a command
    #[arg(long, value_name = "URL", conflicts_with_all = ["command", "env"])]
    pub(crate) url: Option<String>,
    /// Command that starts the server, and its arguments
    #[arg(last = true, required_unless_present = "url")]
    pub(crate) command: Vec<String>,
    /// Sets an environment variable of the command; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Configuration file to change, instead of the host's own
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Writes the change without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// Shows the change without writing it
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}

#[derive(Args)]
pub(crate) struct Bundle {
    /// File of the bundle, such as `booking.mcpb`; a bundle that exists is replaced
    pub(crate) file: PathBuf,
    /// Author of the server
    #[arg(long, value_name = "NAME")]
    pub(crate) author: String,
    /// Description, instead of the server's own
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Environment variable that the host asks its user for, and keeps like a password; can be
    /// repeated
    #[arg(long, value_name = "NAME=DESCRIPTION")]
    pub(crate) user_config: Vec<String>,
    /// File of the server's program, and its arguments, which become part of the bundle: no
    /// secrets. It is started, and asked for its name, version and tools, over standard input and
    /// output
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<String>,
}

#[derive(Args)]
pub(crate) struct ServerJson {
    /// Name in the registry, such as io.github.owner/server
    pub(crate) name: String,
    /// Bundle that `mrtr bundle` made
    #[arg(long, value_name = "FILE", requires = "bundle_url")]
    pub(crate) bundle: Option<PathBuf>,
    /// URL where the bundle can be downloaded; it contains "mcp"
    #[arg(long, value_name = "URL", requires = "bundle")]
    pub(crate) bundle_url: Option<String>,
    /// URL of the server's MCP endpoint
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Environment variable that contains a bearer token for --url
    #[arg(long, value_name = "VARIABLE", requires = "url")]
    pub(crate) token_env: Option<String>,
    /// Description of at most 100 characters, instead of the server's own
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Repository of the server, at github.com or gitlab.com
    #[arg(long, value_name = "URL")]
    pub(crate) repository: Option<String>,
}

/// A program that connects to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Host {
    /// .mcp.json in the current folder
    ClaudeCode,
    /// `claude_desktop_config.json`; commands only
    ClaudeDesktop,
    /// ~/.cursor/mcp.json
    Cursor,
    /// ~/.gemini/settings.json
    Gemini,
    /// .vscode/mcp.json in the current folder
    Vscode,
}
