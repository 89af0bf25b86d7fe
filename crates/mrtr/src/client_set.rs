//! Clients of several servers.

use std::collections::BTreeMap;
use std::fmt;

use mrtr_client::{CallError, Client, ClientBuilder};
use mrtr_schema::apps::ToolUiMeta;
use mrtr_schema::jsonrpc::Response;
use mrtr_schema::peer_text;
use mrtr_schema::tool::Tool;
use mrtr_transport::http::{HttpClient, HttpClientBuilder};
use mrtr_transport::stdio::ChildServer;
use mrtr_transport::{OutgoingRequest, Transport, TransportError};
use serde::Deserialize;

use crate::child_connection::ChildConnection;
use crate::http_connection::HttpConnection;

/// The clients of several servers, from one configuration.
///
/// The configuration has the format that MCP hosts share: an object `mcpServers` with an entry for
/// each server. An entry has either `command`, `args`, `env` and `cwd` (the folder in which the
/// process starts), or `url` and `headers`. A URL in `httpUrl` takes precedence over `url`.
///
/// In the texts of an entry, `${NAME}` is replaced by the environment variable `NAME`, so that the
/// file needs no secrets. An entry with `disabled: true` is skipped, and unknown members are
/// ignored.
///
/// A child process inherits the whole environment of this process, and gets `env` in addition. It
/// can read every secret in them. No process is started and no request is sent before the first
/// call.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use mrtr::{ClientSet, ElicitResult};
///
/// let config = r#"{ "mcpServers": {
///     "files": { "command": "file-server", "args": ["--root", "/srv"] },
///     "booking": {
///         "url": "https://booking.example/mcp",
///         "headers": { "Authorization": "Bearer ${BOOKING_TOKEN}" }
///     }
/// } }"#;
/// // Sets the handlers of each server's client, and which extensions it declares.
/// let set = ClientSet::from_json(config, |_, client| {
///     client.with_tasks().on_form(async |_, _| Ok(ElicitResult::decline()))
/// })?;
/// for listed in set.list_tools().await {
///     match listed.tools {
///         Ok(tools) => tools.iter().for_each(|tool| println!("{}", tool.name)),
///         Err(error) => println!("{}: {error}", listed.server),
///     }
/// }
/// // Calls the tool `book` of the server `booking`.
/// let (client, tool) = set.route("booking__book").ok_or("no such server")?;
/// let result = client.call_tool(tool, serde_json::json!({ "people": 2 })).await?;
/// # Ok(()) }
/// ```
pub struct ClientSet(Vec<(String, Client<Connection>)>);

/// The transport to a server of a [`ClientSet`].
///
/// Its [`Debug`] form contains only the kind of transport, since environment variables and headers
/// may be secret.
#[non_exhaustive]
pub enum Connection {
    /// A server over HTTP.
    Http(Box<HttpConnection>),
    /// A child process.
    Child(Box<ChildConnection>),
}

/// The tools of one server of a [`ClientSet`].
#[derive(Debug)]
#[non_exhaustive]
pub struct ServerTools {
    /// The prefix of the server: its name, with unsupported characters replaced by `_`.
    pub server: String,
    /// The tools, named by the server's prefix, `__` and the tool's own name; or the error of
    /// listing them.
    pub tools: Result<Vec<Tool>, CallError>,
}

/// The error of an invalid configuration.
#[derive(Debug)]
pub struct ConfigError(String);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    mcp_servers: BTreeMap<String, ServerEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerEntry {
    r#type: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// The folder in which the process starts.
    cwd: Option<String>,
    url: Option<String>,
    /// The URL in the configuration of Gemini CLI, where `url` is that of an older transport.
    http_url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    disabled: bool,
}

/// Separates a server's prefix from the name of its tool.
const SEPARATOR: &str = "__";

impl ClientSet {
    /// Creates the clients from a configuration. `configure` sets up the client of each server, and
    /// gets the server's name.
    ///
    /// A server's name is the prefix of its tools. In the prefix, characters other than
    /// `A-Z a-z 0-9 _ -` are replaced by `_`.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is not JSON of the described format. An entry is invalid if
    ///
    /// - its environment variable is not set, or `${` is not followed by a name and `}`,
    /// - it has both or neither of `command` and `url`,
    /// - its `type` is unknown, or does not match its other members,
    /// - its URL or one of its headers is invalid,
    /// - its name is empty, or has the same prefix as another name.
    ///
    /// The error names the server, and contains no values of its arguments, environment variables
    /// and headers, which may be secret.
    pub fn from_json(
        config: &str,
        configure: impl Fn(&str, ClientBuilder<Connection>) -> ClientBuilder<Connection>,
    ) -> Result<Self, ConfigError> {
        Self::from_json_with_http(config, |_, http| http, configure)
    }

    /// Creates the clients like [`from_json`](Self::from_json). `configure_http` sets up the HTTP
    /// client of each server with a URL, such as its credentials. It gets the server's name.
    ///
    /// # Errors
    ///
    /// Those of [`from_json`](Self::from_json).
    pub fn from_json_with_http(
        config: &str,
        configure_http: impl Fn(&str, HttpClientBuilder) -> HttpClientBuilder,
        configure: impl Fn(&str, ClientBuilder<Connection>) -> ClientBuilder<Connection>,
    ) -> Result<Self, ConfigError> {
        let config: Config =
            serde_json::from_str(config).map_err(|error| ConfigError(without_text(&error)))?;
        let mut clients: Vec<(String, Client<Connection>)> = Vec::new();
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        for (name, entry) in config.mcp_servers.into_iter().filter(|(_, entry)| !entry.disabled) {
            let invalid = |reason: String| ConfigError(format!("server {name:?}: {reason}"));
            let connection = entry.connect(|http| configure_http(&name, http)).map_err(invalid)?;
            let is_kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            let prefix: String = name.chars().map(|c| if is_kept(c) { c } else { '_' }).collect();
            if prefix.is_empty() {
                return Err(invalid("the name is empty".to_owned()));
            }
            if let Some(other) = names.insert(prefix.clone(), name.clone()) {
                return Err(ConfigError(format!(
                    "server names {other:?} and {name:?} both map to prefix {prefix:?}"
                )));
            }
            clients.push((prefix, configure(&name, Client::builder(connection)).build()));
        }
        // Longest prefix first: `a__b__c` is the tool `c` of `a__b`, if that server exists.
        clients.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Ok(Self(clients))
    }

    /// Returns the prefix and the client of each server.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Client<Connection>)> {
        self.0.iter().map(|(name, client)| (name.as_str(), client))
    }

    /// Lists the tools of all servers concurrently. If a server fails, its error is in its
    /// [`ServerTools`], and the tools of the other servers are listed.
    ///
    /// The tools are for the model: app-only tools (MCP Apps) are left out, and, with a logged
    /// warning, tools whose metadata of MCP Apps cannot be read.
    ///
    /// A tool is skipped with a logged warning if [`route`](Self::route) would send its calls to
    /// another server, whose prefix is longer.
    pub async fn list_tools(&self) -> Vec<ServerTools> {
        let all = self.iter().enumerate().map(|(at, (server, client))| async move {
            let tools = client.list_tools().await.map(|mut tools| {
                tools.retain_mut(|tool| {
                    if !is_for_model(server, tool) {
                        return false;
                    }
                    let own = std::mem::take(&mut tool.name);
                    tool.name = format!("{server}{SEPARATOR}{own}");
                    // A server must not offer a tool whose calls would reach another server.
                    let is_own = self.position(&tool.name) == Some((at, own.as_str()));
                    if !is_own {
                        tracing::warn!(
                            target: "mrtr::client",
                            server,
                            tool = own,
                            "skipping a tool whose name maps to another server"
                        );
                    }
                    is_own
                });
                tools
            });
            ServerTools { server: server.to_owned(), tools }
        });
        futures_util::future::join_all(all).await
    }

    /// Returns the client of the server that a listed tool belongs to, and the tool's own name;
    /// `None` if no server has its prefix.
    ///
    /// It does not check that the server has the tool, nor that the tool is for the caller: check a
    /// name from the model against [`list_tools`](Self::list_tools), and one from a view by
    /// [`ToolUiMeta::is_for_app`] and its server.
    pub fn route<'n>(&self, tool: &'n str) -> Option<(&Client<Connection>, &'n str)> {
        let (at, name) = self.position(tool)?;
        self.0.get(at).map(|(_, client)| (client, name))
    }

    fn position<'n>(&self, tool: &'n str) -> Option<(usize, &'n str)> {
        self.0.iter().enumerate().find_map(|(at, (server, _))| {
            Some((at, tool.strip_prefix(server.as_str())?.strip_prefix(SEPARATOR)?))
        })
    }
}

/// Returns true if a host may offer the tool to its model.
fn is_for_model(server: &str, tool: &Tool) -> bool {
    match ToolUiMeta::of(tool) {
        Ok(ui) => ui.is_for_model(),
        Err(error) => {
            let (why, tool) = (error.to_string(), peer_text::quote(&tool.name));
            tracing::warn!(target: "mrtr::client", server, tool, why, "skipping an invalid tool");
            false
        }
    }
}

impl ServerEntry {
    fn connect(
        &self,
        configure_http: impl FnOnce(HttpClientBuilder) -> HttpClientBuilder,
    ) -> Result<Connection, String> {
        let url = self.http_url.as_ref().or(self.url.as_ref());
        match (self.r#type.as_deref(), &self.command, url) {
            (None | Some("stdio"), Some(command), None) => {
                let args = self.args.iter().map(|arg| expand("args", arg));
                let args = args.collect::<Result<Vec<_>, _>>()?;
                let mut child = ChildServer::new(expand("command", command)?, args);
                if let Some(folder) = &self.cwd {
                    child = child.current_dir(expand("cwd", folder)?);
                }
                for (name, value) in &self.env {
                    child = child.env(name, expand(name, value)?);
                }
                Ok(Connection::Child(Box::new(ChildConnection::new(child))))
            }
            (None | Some("http" | "streamable-http" | "streamableHttp"), None, Some(url)) => {
                let mut http = HttpClient::builder(expand("url", url)?);
                for (name, value) in &self.headers {
                    let value = http::HeaderValue::from_str(&expand(name, value)?);
                    let name =
                        name.parse().map_err(|_| "the name of a header is invalid".to_owned())?;
                    let value = value.map_err(|_| format!("invalid value of header {name}"))?;
                    http = http.header(name, value);
                }
                let http = configure_http(http).build().map_err(|error| error.to_string())?;
                Ok(Connection::Http(Box::new(HttpConnection::new(http))))
            }
            (Some(other), ..)
                if !matches!(other, "stdio" | "http" | "streamable-http" | "streamableHttp") =>
            {
                Err(format!("unknown transport type {other:?}"))
            }
            _ => {
                Err("expected either `command` (type \"stdio\") or `url` (type \"http\")"
                    .to_owned())
            }
        }
    }
}

/// Returns the message of a syntax or type error, without the text that has the wrong type.
fn without_text(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match message.rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None => message,
    }
}

/// Replaces each `${NAME}` in a member of an entry by the environment variable of that name.
fn expand(member: &str, text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_()".contains(c);
    let mut parts = text.split("${");
    let mut expanded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or_default();
        let value = std::env::var(name).map_err(|_| {
            // Anything else may be a secret.
            if name.is_empty() || !name.chars().all(is_allowed) {
                format!("{member}: \"${{\" is not followed by the name of a variable and \"}}\"")
            } else {
                format!("{member}: the environment variable {name} is not set")
            }
        });
        expanded += &value?;
        expanded += rest;
    }
    Ok(expanded)
}

impl Transport for Connection {
    fn correlates_logs(&self) -> bool {
        match self {
            Self::Http(http) => http.correlates_logs(),
            Self::Child(child) => child.correlates_logs(),
        }
    }

    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        match self {
            Self::Http(http) => http.send(outgoing).await,
            Self::Child(child) => child.send(outgoing).await,
        }
    }

    fn authorization_epoch(&self) -> u64 {
        match self {
            Self::Http(http) => http.authorization_epoch(),
            Self::Child(child) => child.authorization_epoch(),
        }
    }

    fn protocol_version(&self) -> Option<&'static str> {
        match self {
            Self::Http(http) => http.protocol_version(),
            Self::Child(child) => child.protocol_version(),
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http(_) => "Http",
            Self::Child(_) => "Child",
        })
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid server configuration: {}", self.0)
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Debug for ClientSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}
