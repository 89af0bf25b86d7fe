//! Foreign clients against our server, and our client against foreign servers, over real HTTP.

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
    println!("\ninterop: Python's client on our booking tool");
    let ours = Server::start(
        Command::new(examples.join("examples/quickstart"))
            .arg("--replica")
            .env("BOOKING_SECRET", "Zm9yIHRlc3RzIG9ubHksIG5vdCBhIHNlY3JldCBhdCBhbGw")
            .env("PORT", "0"),
    )?;
    step(
        Command::new(&python)
            .arg(script("client.py"))
            .arg(format!("http://127.0.0.1:{}/mcp", ours.port)),
    )?;
    drop(ours);

    println!("\ninterop: our client on Python's server");
    let bin = build(&["--package", "mrtr-conformance", "--bins"])?;
    let theirs = Server::start(Command::new(&python).arg(script("server.py")))?;
    step(
        Command::new(bin.join("interop-client"))
            .arg(format!("http://127.0.0.1:{}/mcp", theirs.port)),
    )
}
