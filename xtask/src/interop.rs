//! Foreign clients against our server, and our client against foreign servers, over HTTP and stdio.

use std::path::PathBuf;
use std::process::Command;

use crate::Result;
use crate::run::{Server, build, run as step};
use crate::tools::{python, script, typescript};

pub fn run(args: &[String]) -> Result {
    match args {
        [] => {
            with(&Peer::python()?)?;
            with(&Peer::typescript()?)
        }
        [one] if one == "python" => with(&Peer::python()?),
        [one] if one == "typescript" => with(&Peer::typescript()?),
        other => {
            Err(format!("there is no interop with {other:?}; there are `python`, `typescript`")
                .into())
        }
    }
}

/// A foreign SDK: what runs its scripts, and the two of them.
struct Peer {
    name: &'static str,
    runs: PathBuf,
    client: PathBuf,
    server: PathBuf,
}

impl Peer {
    fn python() -> Result<Self> {
        let (client, server) = (script("client.py"), script("server.py"));
        Ok(Self { name: "Python", runs: python()?, client, server })
    }

    fn typescript() -> Result<Self> {
        let (runs, home) = typescript()?;
        let (client, server) = (home.join("client.mjs"), home.join("server.mjs"));
        Ok(Self { name: "TypeScript", runs, client, server })
    }
}

fn with(peer: &Peer) -> Result {
    let Peer { name, runs, client, server } = peer;
    let examples = build(&["--package", "mrtr-examples", "--example", "quickstart"])?;
    println!("\ninterop: {name}'s client on our booking tool, over HTTP and stdio");
    let quickstart = examples.join("examples/quickstart");
    let secret = "Zm9yIHRlc3RzIG9ubHksIG5vdCBhIHNlY3JldCBhdCBhbGw";
    let mut ours = Command::new(&quickstart);
    let ours = Server::start(ours.arg("--replica").env("BOOKING_SECRET", secret).env("PORT", "0"))?;
    step(Command::new(runs).arg(client).arg(format!("http://127.0.0.1:{}/mcp", ours.port)))?;
    drop(ours);
    let mut over_stdio = Command::new(runs);
    step(over_stdio.arg(client).arg(&quickstart).arg("--stdio").env("BOOKING_SECRET", secret))?;

    println!("\ninterop: our client on {name}'s server, over HTTP and stdio");
    let bin = build(&["--package", "mrtr-conformance", "--bins"])?;
    let client = bin.join("interop-client");
    let theirs = Server::start(Command::new(runs).arg(server))?;
    step(Command::new(&client).arg(format!("http://127.0.0.1:{}/mcp", theirs.port)))?;
    drop(theirs);
    step(Command::new(&client).arg(runs).arg(server).arg("--stdio"))
}
