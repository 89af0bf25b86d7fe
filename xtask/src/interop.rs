//! Foreign clients against our server, and our client against foreign servers, over HTTP and stdio.

use std::path::PathBuf;
use std::process::Command;

use crate::Result;
use crate::run::{Server, build, run as step};
use crate::tools::{python, rmcp, script, typescript};

/// Gets a peer.
type Get = fn() -> Result<Peer>;

const PEERS: [(&str, Get); 3] =
    [("python", Peer::python), ("typescript", Peer::typescript), ("rmcp", Peer::rmcp)];

pub fn run(args: &[String]) -> Result {
    let known = |name: &String| PEERS.iter().any(|(peer, _)| peer == name);
    if let Some(other) = args.iter().find(|name| !known(name)) {
        let names = PEERS.map(|(name, _)| name).join(", ");
        return Err(format!("there is no interop with {other:?}; there is: {names}").into());
    }
    for (name, peer) in PEERS {
        if args.is_empty() || args.iter().any(|wanted| wanted == name) {
            with(&peer()?)?;
        }
    }
    Ok(())
}

/// A foreign SDK.
struct Peer {
    name: &'static str,
    client: Line,
    server: Line,
}

/// A program, with a script if it is an interpreter.
struct Line(PathBuf, Option<PathBuf>);

impl Line {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.0);
        command.args(&self.1);
        command
    }
}

impl Peer {
    fn python() -> Result<Self> {
        let python = python()?;
        let line = |name| Line(python.clone(), Some(script(name)));
        Ok(Self { name: "Python", client: line("client.py"), server: line("server.py") })
    }

    fn typescript() -> Result<Self> {
        let (node, home) = typescript()?;
        let line = |name| Line(node.clone(), Some(home.join(name)));
        Ok(Self { name: "TypeScript", client: line("client.mjs"), server: line("server.mjs") })
    }

    fn rmcp() -> Result<Self> {
        let bin = rmcp()?;
        let line = |name| Line(bin.join(name), None);
        Ok(Self { name: "rmcp", client: line("client"), server: line("server") })
    }
}

fn with(peer: &Peer) -> Result {
    let name = peer.name;
    let examples = build(&["--package", "mrtr-examples", "--example", "quickstart"])?;
    println!("\ninterop: {name}'s client on our booking tool, over HTTP and stdio");
    let quickstart = examples.join("examples/quickstart");
    let secret = "Zm9yIHRlc3RzIG9ubHksIG5vdCBhIHNlY3JldCBhdCBhbGw";
    let mut ours = Command::new(&quickstart);
    let ours = Server::start(ours.arg("--replica").env("BOOKING_SECRET", secret).env("PORT", "0"))?;
    step(peer.client.command().arg(format!("http://127.0.0.1:{}/mcp", ours.port)))?;
    drop(ours);
    let mut over_stdio = peer.client.command();
    step(over_stdio.arg(&quickstart).arg("--stdio").env("BOOKING_SECRET", secret))?;

    println!("\ninterop: our client on {name}'s server, over HTTP and stdio");
    let bin = build(&["--package", "mrtr-conformance", "--bins"])?;
    let client = bin.join("interop-client");
    let theirs = Server::start(&mut peer.server.command())?;
    step(Command::new(&client).arg(format!("http://127.0.0.1:{}/mcp", theirs.port)))?;
    drop(theirs);
    let Line(program, script) = &peer.server;
    step(Command::new(&client).arg(program).args(script).arg("--stdio"))
}
