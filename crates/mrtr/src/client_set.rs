//! Several servers at once.

use std::collections::BTreeMap;
use std::fmt;

use mrtr_client::{CallError, Client, ClientBuilder};
use mrtr_schema::jsonrpc::Response;
use mrtr_schema::tool::Tool;
use mrtr_transport::http::HttpClient;
use mrtr_transport::stdio::ChildServer;
use mrtr_transport::{OutgoingRequest, Transport, TransportError};
use serde::Deserialize;

/// Servers from one configuration, in the shape that hosts of this protocol share: an object `mcpServers` with, for each server,
/// either `command`, `args` and `env`, or `url` and `headers`.
///
/// In these texts, `${NAME}` stands for an environment variable, so that no secret has to be in the file. `disabled` leaves a server
/// out, and other members are passed over. A process that is started has our whole environment, and `env` beside it: whatever secret is
/// in the one is known to the other. Nothing is started and nothing is sent until a server is called.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use mrtr::{ClientSet, ElicitResult};
///
/// let config = r#"{ "mcpServers": {
///     "files": { "command": "file-server", "args": ["--root", "/srv"] },
///     "booking": { "url": "https://booking.example/mcp", "headers": { "Authorization": "Bearer ${BOOKING_TOKEN}" } }
/// } }"#;
/// // Each server's client gets its handlers here.
/// let set = ClientSet::from_json(config, |_, client| {
///     client.on_form(async |_, _| Ok(ElicitResult::decline()))
/// })?;
/// for listed in set.list_tools().await {
///     match listed.tools {
///         Ok(tools) => tools.iter().for_each(|tool| println!("{}", tool.name)),
///         Err(error) => println!("{}: {error}", listed.server),
///     }
/// }
/// // The tool `book` of the server `booking`.
/// let (client, tool) = set.route("booking__book").ok_or("no such server")?;
/// let result = client.call_tool(tool, serde_json::json!({ "people": 2 })).await?;
/// # Ok(()) }
/// ```
pub struct ClientSet(Vec<(String, Client<Connection>)>);

/// A connection to a server of a [`ClientSet`]. What is in its environment and headers is not printed.
#[non_exhaustive]
pub enum Connection {
    /// Over HTTP.
    Http(Box<HttpClient>),
    /// A process of ours.
    Child(Box<ChildServer>),
}

/// What a server of a [`ClientSet`] offers.
#[derive(Debug)]
#[non_exhaustive]
pub struct ServerTools {
    /// The server.
    pub server: String,
    /// Its tools, each with the server's name and `__` before its own; or why they are not known.
    pub tools: Result<Vec<Tool>, CallError>,
}

/// Why a configuration is none.
#[derive(Debug)]
pub struct ConfigError(String);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    mcp_servers: BTreeMap<String, ServerEntry>,
}

#[derive(Deserialize)]
struct ServerEntry {
    r#type: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    disabled: bool,
}

/// Stands between a server's name and a tool's.
const BETWEEN: &str = "__";

impl ClientSet {
    /// Reads a configuration; `with` gives each server's client what it needs, and is told the server's name.
    ///
    /// In names of tools, characters other than `A-Z a-z 0-9 _ -` of a server's name are written as `_`.
    ///
    /// # Errors
    ///
    /// If it is no JSON of that shape, names an environment variable that is not set, a transport that is not known or a URL that is
    /// none, or has two servers whose names are the same when they are written so. The error says which server it is.
    pub fn from_json(
        config: &str,
        with: impl Fn(&str, ClientBuilder<Connection>) -> ClientBuilder<Connection>,
    ) -> Result<Self, ConfigError> {
        let config: Config =
            serde_json::from_str(config).map_err(|error| ConfigError(error.to_string()))?;
        let mut clients: Vec<(String, Client<Connection>)> = Vec::new();
        for (name, entry) in config.mcp_servers.into_iter().filter(|(_, entry)| !entry.disabled) {
            let wrong = |why: String| ConfigError(format!("the server {name:?}: {why}"));
            let connection = entry.connect().map_err(wrong)?;
            let is_kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            let prefix: String = name.chars().map(|c| if is_kept(c) { c } else { '_' }).collect();
            if prefix.is_empty() || clients.iter().any(|(other, _)| *other == prefix) {
                return Err(wrong(format!(
                    "it is known as {prefix:?}, and so is another one, or nobody"
                )));
            }
            clients.push((prefix, with(&name, Client::builder(connection)).build()));
        }
        // `a__b__c` is the tool `c` of `a__b`, if there is such a server.
        clients.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Ok(Self(clients))
    }

    /// Each server's name, as it stands before its tools, and its client.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Client<Connection>)> {
        self.0.iter().map(|(name, client)| (name.as_str(), client))
    }

    /// Lists the tools of all servers, at the same time. One that fails does not keep the others from it. A tool that would be
    /// called at another server, because that one's name begins as the tool's does, is left out, with a warning in the log.
    pub async fn list_tools(&self) -> Vec<ServerTools> {
        let all = self.iter().enumerate().map(|(at, (server, client))| async move {
            let tools = client.list_tools().await.map(|mut tools| {
                tools.retain_mut(|tool| {
                    let own = std::mem::take(&mut tool.name);
                    tool.name = format!("{server}{BETWEEN}{own}");
                    // A server must not offer what would be called at another one.
                    let is_own = self.position(&tool.name) == Some((at, own.as_str()));
                    if !is_own {
                        tracing::warn!(target: "mrtr::client", server, tool = own, "a tool with the name of another server's is left out");
                    }
                    is_own
                });
                tools
            });
            ServerTools { server: server.to_owned(), tools }
        });
        futures_util::future::join_all(all).await
    }

    /// Whose tool this is, and what it is called there. Whether the server has it, the server says.
    pub fn route<'n>(&self, tool: &'n str) -> Option<(&Client<Connection>, &'n str)> {
        let (at, name) = self.position(tool)?;
        self.0.get(at).map(|(_, client)| (client, name))
    }

    fn position<'n>(&self, tool: &'n str) -> Option<(usize, &'n str)> {
        self.0.iter().enumerate().find_map(|(at, (server, _))| {
            Some((at, tool.strip_prefix(server.as_str())?.strip_prefix(BETWEEN)?))
        })
    }
}

impl ServerEntry {
    fn connect(&self) -> Result<Connection, String> {
        match (self.r#type.as_deref(), &self.command, &self.url) {
            (None | Some("stdio"), Some(command), None) => {
                let args =
                    self.args.iter().map(|arg| expand(arg)).collect::<Result<Vec<_>, _>>()?;
                let mut child = ChildServer::new(expand(command)?, args);
                for (name, value) in &self.env {
                    child = child.env(name, expand(value)?);
                }
                Ok(Connection::Child(Box::new(child)))
            }
            (None | Some("http" | "streamable-http" | "streamableHttp"), None, Some(url)) => {
                let mut http = HttpClient::builder(expand(url)?);
                for (name, value) in &self.headers {
                    let value = http::HeaderValue::from_str(&expand(value)?);
                    let name = name.parse().map_err(|_| format!("{name:?} is no header"))?;
                    let value = value
                        .map_err(|_| format!("the header {name} has no value that may be sent"))?;
                    http = http.header(name, value);
                }
                Ok(Connection::Http(Box::new(http.build().map_err(|error| error.to_string())?)))
            }
            (Some(other), ..)
                if !matches!(other, "stdio" | "http" | "streamable-http" | "streamableHttp") =>
            {
                Err(format!("the transport {other:?} is not known here"))
            }
            _ => Err("it needs a `command`, or a `url`, and not both".to_owned()),
        }
    }
}

/// Puts environment variables in.
fn expand(text: &str) -> Result<String, String> {
    let mut parts = text.split("${");
    let mut expanded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) =
            part.split_once('}').ok_or_else(|| format!("{text:?} has a `${{` without its end"))?;
        let value = std::env::var(name);
        expanded += &value.map_err(|_| format!("the environment variable {name} is not set"))?;
        expanded += rest;
    }
    Ok(expanded)
}

impl Transport for Connection {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        match self {
            Self::Http(http) => http.send(outgoing).await,
            Self::Child(child) => child.send(outgoing).await,
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
        write!(f, "the configuration of servers: {}", self.0)
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Debug for ClientSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}
