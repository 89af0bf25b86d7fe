//! The authorization server, and other servers in processes of their own.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use url::Url;

use crate::Result;

/// A process that serves at a port, until this value is dropped.
pub(crate) struct ServerProcess {
    /// It also ends when its stdin is closed, even if this process is killed.
    _process: Child,
    pub(crate) port: u16,
}

impl ServerProcess {
    /// Starts a server that prints `listening PORT` on its first line.
    pub(crate) async fn start(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let stdout = process.stdout.take().ok_or("it has no stdout")?;
        let line = BufReader::new(stdout).lines().next_line().await?.unwrap_or_default();
        let port = line.strip_prefix("listening ").and_then(|port| port.parse().ok());
        let port = port.ok_or_else(|| format!("the server printed {line:?}"))?;
        Ok(Self { _process: process, port })
    }
}

/// The authorization server, until this value is dropped.
pub(crate) struct Provider {
    _process: ServerProcess,
    pub(crate) issuer: String,
    http: reqwest::Client,
}

impl Provider {
    pub(crate) async fn start(node: &Path, folder: &Path) -> Result<Self> {
        let mut command = Command::new(node);
        let process = ServerProcess::start(command.arg(folder.join("provider.mjs"))).await?;
        let issuer = format!("http://127.0.0.1:{}", process.port);
        Ok(Self { _process: process, issuer, http: reqwest::Client::new() })
    }

    /// Returns the private key of the client `jwt`, as PEM.
    pub(crate) async fn client_key(&self) -> Result<String> {
        self.control("client-key", &[]).await
    }

    /// Returns the types of the successful grants for a resource, in their order.
    pub(crate) async fn grants(&self, resource: &str) -> Result<String> {
        self.control("grants", &[("resource", resource)]).await
    }

    /// Sets the lifetime of further access tokens.
    pub(crate) async fn set_lifetime(&self, seconds: u64) -> Result {
        self.control("lifetime", &[("seconds", &seconds.to_string())]).await.map(drop)
    }

    /// Replaces the key that signs. The last one remains in the key set.
    pub(crate) async fn rotate_keys(&self) -> Result {
        self.control("rotate", &[]).await.map(drop)
    }

    async fn control(&self, path: &str, query: &[(&str, &str)]) -> Result<String> {
        let url = Url::parse_with_params(&format!("{}/test/{path}", self.issuer), query)?;
        Ok(self.http.get(url).send().await?.error_for_status()?.text().await?)
    }

    /// Uses a refresh token of a public client, and returns the status and the body of the
    /// response.
    pub(crate) async fn refresh(&self, session: &serde_json::Value) -> Result<(u16, String)> {
        let tokens = session.get("tokens").ok_or("no tokens")?;
        let text = |name| tokens.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "refresh_token")
            .append_pair("refresh_token", text("refresh_token"))
            .append_pair("client_id", text("client_id"))
            .append_pair("resource", text("resource"))
            .finish();
        let request = self.http.post(format!("{}/token", self.issuer)).body(form);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let response = request.send().await?;
        Ok((response.status().as_u16(), response.text().await?))
    }
}
