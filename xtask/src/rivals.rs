//! Sends the same requests to our server and to those of other SDKs with their default settings,
//! and records violated requirements in `conformance/rivals.toml`.

mod differences;
mod probes;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

pub use differences::Differences;
use differences::{Difference, FILE};
use probes::{Holds, Probe};

use crate::Result;
use crate::interop::Peer;
use crate::requirements::{self, LEDGER};
use crate::run::{Server, build};

struct Answer {
    status: u16,
    /// The JSON-RPC response: a JSON body, or the last event.
    message: Value,
}

impl Answer {
    fn code(&self) -> Option<i64> {
        self.message.pointer("/error/code").and_then(Value::as_i64)
    }

    /// Describes the response in a few words.
    fn shown(&self) -> String {
        let Self { status, message } = self;
        match (self.code(), message.pointer("/result/resultType").and_then(Value::as_str)) {
            (Some(code), _) => format!("{status} and {code}"),
            (None, Some("input_required")) => format!("{status} and an input request"),
            (None, _) if message.pointer("/result/isError") == Some(&json!(true)) => {
                format!("{status} and `isError`")
            }
            (None, _) if message.get("result").is_some() => format!("{status} and a result"),
            (None, _) => format!("{status} alone"),
        }
    }
}

impl Probe {
    fn holds(&self, answer: &Answer) -> std::result::Result<(), String> {
        let holds = match self.holds {
            Holds::Refused(status, code) => (answer.status, answer.code()) == (status, Some(code)),
            Holds::Error(code) => answer.code() == Some(code),
            Holds::Status(status) => answer.status == status,
            Holds::Result(place) => {
                if answer.message.get("result").is_some() && answer.message.pointer(place).is_none()
                {
                    let place = place.replace("~1", "/");
                    return Err(format!("no `{}`", place.rsplit('/').next().unwrap_or_default()));
                }
                answer.message.pointer(place).is_some()
            }
        };
        if holds { Ok(()) } else { Err(answer.shown()) }
    }
}

fn send(port: u16, probe: &Probe) -> Result<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut text =
        format!("{} /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n", probe.verb);
    for (name, value) in &probe.headers {
        text.extend([name, ": ", value, "\r\n"]);
    }
    write!(text, "Content-Length: {}\r\n\r\n{}", probe.body.len(), probe.body)?;
    stream.write_all(text.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| format!("{}: no status in {text:?}", probe.id))?;
    // The message may be the body, a chunk or an event.
    let mut lines = text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let message =
        lines.rfind(|line| line.starts_with('{')).and_then(|line| serde_json::from_str(line).ok());
    Ok(Answer { status, message: message.unwrap_or_default() })
}

pub fn run(args: &[String]) -> Result {
    let bin = build()?;
    let ours = Server::start(&mut Command::new(bin.join("interop-server")))?;
    let peers = Peer::all()?;
    let mut servers = Vec::new();
    for peer in &peers {
        // The servers' logs of our requests are not of interest.
        servers.push(Server::start(peer.server.command().stderr(Stdio::null()))?);
    }
    let known = requirements::ids()?;
    let (mut requests, mut wrong) = (Vec::new(), Vec::new());
    for probe in probes::all() {
        if !known.contains(probe.id) {
            return Err(format!("{LEDGER} lacks {}", probe.id).into());
        }
        if let Err(shown) = probe.holds(&send(ours.port, &probe)?) {
            wrong.push(format!("{}, {}: ours answers {shown}", probe.id, probe.what));
        }
        let mut answers = BTreeMap::new();
        for (peer, server) in peers.iter().zip(&servers) {
            if let Err(shown) = probe.holds(&send(server.port, &probe)?) {
                answers.insert(peer.name.to_owned(), shown);
            }
        }
        if !answers.is_empty() {
            let (requirement, request) = (probe.id.to_owned(), probe.what.to_owned());
            requests.push(Difference { requirement, request, answers });
        }
    }
    let versions = peers.iter().map(|peer| (peer.name.to_owned(), peer.version.to_owned()));
    let recorded = Differences::read()?;
    let found =
        Differences { versions: versions.collect(), requests, observed: recorded.observed.clone() };
    println!("\n{}\n{}", toml::to_string_pretty(&found)?, found.summary());
    if args.iter().any(|arg| arg == "--write") {
        found.write()?;
    } else if found != recorded {
        wrong.push(format!(
            "{FILE} differs: run `cargo xtask rivals --write` and review the change"
        ));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n  ").into()) }
}
