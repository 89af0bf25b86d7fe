//! Foreign clients against our server, and our client against foreign servers, over HTTP and stdio.

use std::process::Command;

use crate::Result;
use crate::run::{Server, build, run as step};
use crate::tools::{python, script};

pub fn run(args: &[String]) -> Result {
    match args {
        [] => with_python(),
        [one] if one == "python" => with_python(),
        other => Err(format!("there is no interop with {other:?}; there is `python`").into()),
    }
}

fn with_python() -> Result {
    let python = python()?;
    let examples = build(&["--package", "mrtr-examples", "--example", "quickstart"])?;
    println!("\ninterop: Python's client on our booking tool, over HTTP and stdio");
    let quickstart = examples.join("examples/quickstart");
    let client = script("client.py");
    let secret = "Zm9yIHRlc3RzIG9ubHksIG5vdCBhIHNlY3JldCBhdCBhbGw";
    let mut ours = Command::new(&quickstart);
    let ours = Server::start(ours.arg("--replica").env("BOOKING_SECRET", secret).env("PORT", "0"))?;
    step(Command::new(&python).arg(&client).arg(format!("http://127.0.0.1:{}/mcp", ours.port)))?;
    drop(ours);
    let mut over_stdio = Command::new(&python);
    step(over_stdio.arg(&client).arg(&quickstart).arg("--stdio").env("BOOKING_SECRET", secret))?;

    println!("\ninterop: our client on Python's server, over HTTP and stdio");
    let bin = build(&["--package", "mrtr-conformance", "--bins"])?;
    let (client, server) = (bin.join("interop-client"), script("server.py"));
    let theirs = Server::start(Command::new(&python).arg(&server))?;
    step(Command::new(&client).arg(format!("http://127.0.0.1:{}/mcp", theirs.port)))?;
    drop(theirs);
    step(Command::new(&client).arg(&python).arg(&server).arg("--stdio"))
}
