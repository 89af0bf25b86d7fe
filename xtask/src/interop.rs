//! Foreign clients against our server, and our client against foreign servers, over HTTP and stdio.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Result;
use crate::run::{Server, build, free_port, output, scratch};
use crate::tools::{inspector, python, rmcp, script, typescript};

type Check = fn() -> Result;

const CHECKS: [(&str, Check); 4] = [
    ("python", || with(&Peer::python()?)),
    ("typescript", || with(&Peer::typescript()?)),
    ("rmcp", || with(&Peer::rmcp()?)),
    ("inspector", with_inspector),
];

pub fn run(args: &[String]) -> Result {
    let known = |name: &String| CHECKS.iter().any(|(check, _)| check == name);
    if let Some(other) = args.iter().find(|name| !known(name)) {
        let names = CHECKS.map(|(name, _)| name).join(", ");
        return Err(format!("there is no interop with {other:?}; there is: {names}").into());
    }
    for (name, check) in CHECKS {
        if args.is_empty() || args.iter().any(|wanted| wanted == name) {
            check()?;
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

/// What is tried, in the order of `xtask/interop.md`.
const ROWS: [&str; 16] = [
    "discover",
    "list",
    "call",
    "error",
    "wrong argument",
    "progress",
    "form",
    "decline",
    "url",
    "sampling",
    "roots",
    "rounds",
    "joined",
    "state only",
    "prompt",
    "template",
];

/// The columns of a peer, in their order.
const COLUMNS: [&str; 4] =
    ["its client, HTTP", "its client, stdio", "its server, HTTP", "its server, stdio"];

/// A row that a peer has no way to pass, in the columns whose names have this in them.
struct Cannot {
    peer: &'static str,
    column: &'static str,
    row: &'static str,
    /// Which side cannot, and where its source says so.
    why: &'static str,
}

const CANNOT: [Cannot; 0] = [];

fn with(peer: &Peer) -> Result {
    let name = peer.name;
    let bin = build(&["--package", "mrtr-conformance", "--bins"])?;
    let (our_client, our_server) = (bin.join("interop-client"), bin.join("interop-server"));
    println!("\ninterop: {name}");
    let ours = Server::start(&mut Command::new(&our_server))?;
    let theirs = Server::start(&mut peer.server.command())?;
    let url = |server: &Server| format!("http://127.0.0.1:{}/mcp", server.port);
    let Line(program, script) = &peer.server;
    let columns = [
        rows(peer.client.command().arg(url(&ours)))?,
        rows(peer.client.command().arg(&our_server).arg("--stdio"))?,
        rows(Command::new(&our_client).arg(url(&theirs)))?,
        rows(Command::new(&our_client).arg(program).args(script).arg("--stdio"))?,
    ];
    table(name, &columns)
}

/// Runs a client: what it says of each row.
fn rows(client: &mut Command) -> Result<Vec<String>> {
    let said = output(client)?;
    let mut rows = Vec::new();
    for (row, line) in ROWS.iter().zip(said.lines().chain(std::iter::repeat(""))) {
        match line.split_once('\t') {
            Some((said, outcome)) if said == *row => rows.push(outcome.to_owned()),
            _ => return Err(format!("instead of the row {row:?}, the client said {line:?}").into()),
        }
    }
    Ok(rows)
}

/// Prints what came of each row in each column; an error if one is wrong.
fn table(name: &str, columns: &[Vec<String>; 4]) -> Result {
    let (mut notes, mut wrong) = (Vec::new(), 0);
    println!("\n  {name:<16}{}", COLUMNS.map(|column| format!("{column:>19}")).concat());
    for (n, row) in ROWS.iter().enumerate() {
        print!("  {row:<16}");
        for (column, outcomes) in COLUMNS.iter().zip(columns) {
            let outcome = outcomes.get(n).map_or("", String::as_str);
            let cannot = CANNOT.iter().find(|cannot| {
                cannot.peer == name && cannot.row == *row && column.contains(cannot.column)
            });
            let (cell, note) = match (outcome, cannot) {
                ("ok", None) => ("ok".to_owned(), None),
                ("ok", Some(_)) => ("WRONG".to_owned(), Some("it can after all".to_owned())),
                (_, Some(cannot)) => ("cannot".to_owned(), Some(cannot.why.to_owned())),
                (why, None) => ("WRONG".to_owned(), Some(format!("{row}, {column}: {why}"))),
            };
            wrong += usize::from(cell == "WRONG");
            let mark = note.map(|note| {
                let known = notes.iter().position(|known| *known == note);
                known.unwrap_or_else(|| {
                    notes.push(note);
                    notes.len() - 1
                }) + 1
            });
            let mark = mark.map_or_else(|| "    ".to_owned(), |mark| format!(" [{mark}]"));
            print!("{:>19}", cell + &mark);
        }
        println!();
    }
    for (n, note) in notes.iter().enumerate() {
        println!("  [{}] {note}", n + 1);
    }
    if wrong > 0 { Err(format!("{name}: {wrong} cells are wrong").into()) } else { Ok(()) }
}

/// The MCP Inspector lists and calls the tools of the fixture server.
fn with_inspector() -> Result {
    let (node, inspector) = inspector()?;
    let bin = build(&["--package", "mrtr-conformance", "--bins"])?;
    println!("\ninterop: the MCP Inspector on our fixture server");
    let mut server = Command::new(bin.join("conformance-server"));
    let server = Server::start_on(server.stdout(Stdio::null()), free_port()?)?;
    let inspect = |method: &[&str]| -> Result<Value> {
        let mut command = Command::new(&node);
        command.arg(&inspector).arg("--cli").arg(format!("http://127.0.0.1:{}/mcp", server.port));
        command.args(["--protocol-era", "modern", "--quiet", "--format", "json", "--method"]);
        // Where it keeps settings; a person's own are not to be touched.
        command.args(method).env("HOME", scratch("inspector")?);
        let said: Value = serde_json::from_str(&output(&mut command)?)?;
        Ok(said["result"].clone())
    };
    let listed = inspect(&["tools/list", "--strict"])?;
    let tools = listed["tools"].as_array().map_or(0, Vec::len);
    if tools == 0 {
        return Err(format!("the Inspector lists no tools: {listed}").into());
    }
    let called = inspect(&["tools/call", "--tool-name", "test_simple_text"])?;
    if called["content"][0]["text"] != "This is a simple text response for testing." {
        return Err(format!("the Inspector's call came to {called}").into());
    }
    println!("  ok: {tools} tools listed, no error in their schemas; one called");
    Ok(())
}
