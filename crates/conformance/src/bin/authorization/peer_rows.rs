//! The rows with other SDKs.

use std::process::Stdio;

use mrtr::Client;
use mrtr::auth::client::OAuthClient;
use mrtr::http::{HttpClient, HttpConnection};
use tokio::process::Command;

use crate::client_rows::{READER, whoami};
use crate::provider::ServerProcess;
use crate::user::User;
use crate::{Peer, Result, World, expect};

impl World {
    /// Runs a row with another SDK: its name, and `client`, `step-up` or `server`.
    pub(crate) async fn with_peer(&self, row: &str) -> Result {
        let (name, what) = row.split_once(' ').unwrap_or((row, ""));
        let peer = self.peers.iter().find(|peer| peer.name == name);
        match (peer, what) {
            (Some(peer), "client") => self.client_of(peer, &[], &["whoami"]).await,
            (Some(peer), "step-up") => {
                // A client that registers does so for the scopes that it knows of.
                let options = ["--client", "desk", &self.provider.issuer];
                self.client_of(peer, &options, &["whoami", "pay"]).await
            }
            (Some(peer), "server") => self.server_of(peer).await,
            _ => Err("there is no such row".into()),
        }
    }

    /// Its client logs in at our server for each tool, and prints the texts.
    async fn client_of(&self, peer: &Peer, options: &[&str], tools: &[&str]) -> Result {
        let mut command = Command::new(&peer.program);
        command.arg(&peer.client).args(options).arg(self.servers.url("/peer")).args(tools);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let output = command.spawn()?.wait_with_output().await?;
        let said = String::from_utf8(output.stdout)?;
        let words = said.lines().map(|line| {
            let mut words: Vec<_> = line.split(' ').collect();
            words.sort_unstable();
            words
        });
        let wanted = tools.iter().map(|tool| match *tool {
            "pay" => vec!["alice", "booking:pay", "booking:read", "may"],
            _ => vec!["alice", "booking:read", "may"],
        });
        expect("the words of the texts", words.collect::<Vec<_>>(), wanted.collect())?;
        expect("its exit status", output.status.success(), true)
    }

    /// Our client logs in at its server.
    async fn server_of(&self, peer: &Peer) -> Result {
        let mut command = Command::new(&peer.program);
        command.arg(&peer.server).arg(&self.provider.issuer);
        let server = ServerProcess::start(&mut command).await?;
        let oauth = OAuthClient::builder("mrtr").user_agent(User::default().agent()).build()?;
        let url = format!("http://127.0.0.1:{}/mcp", server.port);
        let http = HttpClient::builder(url).credentials(oauth).build()?;
        whoami(&Client::builder(HttpConnection::new(http)).build(), READER).await
    }
}
