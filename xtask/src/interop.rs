//! Runs the clients of other SDKs against our server, and our client against their servers, over
//! HTTP and stdio.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Result;
use crate::run::{Server, build, free_port, output, run as step, scratch};
use crate::tools::{inspector, npm_programs, python, rmcp, rmcp_0, script};

type Check = fn() -> Result;

const CHECKS: [(&str, Check); 8] = [
    ("python", with_python),
    ("typescript", || with(&Peer::typescript()?)),
    ("python-1", || with(&Peer::python_1()?)),
    ("typescript-1", || with(&Peer::typescript_1()?)),
    ("rmcp", || with(&Peer::rmcp()?)),
    ("rmcp-0", || with(&Peer::rmcp_0()?)),
    ("tasks", tasks),
    ("inspector", with_inspector),
];

pub fn run(args: &[String]) -> Result {
    let known = |name: &String| CHECKS.iter().any(|(check, _)| check == name);
    if let Some(other) = args.iter().find(|name| !known(name)) {
        let names = CHECKS.map(|(name, _)| name).join(", ");
        return Err(format!("unknown SDK {other:?}; known SDKs: {names}").into());
    }
    for (name, check) in CHECKS {
        if args.is_empty() || args.iter().any(|wanted| wanted == name) {
            check()?;
        }
    }
    Ok(())
}

/// Another SDK, with its client and its server.
pub struct Peer {
    pub name: &'static str,
    pub version: &'static str,
    /// Its newest revision, if that is a legacy one.
    legacy: Option<&'static str>,
    client: Line,
    pub server: Line,
}

/// A program, and a script if the program is an interpreter.
pub struct Line(PathBuf, Option<PathBuf>);

impl Line {
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.0);
        command.args(&self.1);
        command
    }
}

impl Peer {
    /// Returns the peers of the current revision.
    pub fn all() -> Result<[Self; 3]> {
        Ok([Self::python()?, Self::typescript()?, Self::rmcp()?])
    }

    fn python() -> Result<Self> {
        Self::with_python("python", "Python", "2.3.0")
    }

    fn python_1() -> Result<Self> {
        Ok(Self {
            legacy: Some("2025-11-25"),
            ..Self::with_python("python-1", "Python 1", "1.30.0")?
        })
    }

    fn typescript() -> Result<Self> {
        Self::with_node("typescript", "TypeScript", "2.4.0")
    }

    fn typescript_1() -> Result<Self> {
        Ok(Self {
            legacy: Some("2025-11-25"),
            ..Self::with_node("typescript-1", "TypeScript 1", "1.32.2")?
        })
    }

    fn rmcp() -> Result<Self> {
        Ok(Self::with_programs(&rmcp()?, "rmcp", "3.11.0"))
    }

    fn rmcp_0() -> Result<Self> {
        let peer = Self::with_programs(&rmcp_0()?, "rmcp 0", "0.12.0");
        Ok(Self { legacy: Some("2025-06-18"), ..peer })
    }

    /// Returns the peer whose programs are in a folder.
    fn with_programs(bin: &Path, name: &'static str, version: &'static str) -> Self {
        let [client, server] = ["client", "server"].map(|name| Line(bin.join(name), None));
        Self { name, version, legacy: None, client, server }
    }

    /// Returns the peer whose scripts are in a folder of `interop`.
    fn with_python(
        folder: &'static str,
        name: &'static str,
        version: &'static str,
    ) -> Result<Self> {
        let python = python(folder)?;
        let [client, server] =
            ["client.py", "server.py"].map(|file| Line(python.clone(), Some(script(folder, file))));
        Ok(Self { name, version, legacy: None, client, server })
    }

    /// Returns the peer whose modules are in a folder of `interop`.
    fn with_node(folder: &'static str, name: &'static str, version: &'static str) -> Result<Self> {
        let (node, home) = npm_programs(folder)?;
        let [client, server] =
            ["client.mjs", "server.mjs"].map(|file| Line(node.clone(), Some(home.join(file))));
        Ok(Self { name, version, legacy: None, client, server })
    }

    /// Returns the rows that its clients and ours print.
    fn rows(&self) -> Vec<&'static str> {
        let mut rows = ROWS.to_vec();
        if self.legacy.is_some() {
            rows[0] = "initialize";
        }
        // The older revision has no URL elicitation.
        rows.retain(|row| *row != "url" || self.legacy != Some("2025-06-18"));
        rows
    }
}

/// The rows, in the order of `interop/README.md`.
const ROWS: [&str; 17] = [
    "discover",
    "list",
    "call",
    "error",
    "wrong argument",
    "progress",
    "cancel",
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

/// The columns of each peer.
const COLUMNS: [&str; 4] =
    ["its client, HTTP", "its client, stdio", "its server, HTTP", "its server, stdio"];

fn with(peer: &Peer) -> Result {
    let bin = build()?;
    let (our_client, our_server) = (bin.join("interop-client"), bin.join("interop-server"));
    let ours = Server::start(&mut Command::new(&our_server))?;
    let theirs = Server::start(&mut peer.server.command())?;
    let url = |server: &Server| format!("http://127.0.0.1:{}/mcp", server.port);
    let our_client = || {
        let mut client = Command::new(&our_client);
        client.args(peer.legacy.into_iter().flat_map(|revision| ["--legacy", revision]));
        client
    };
    let Line(program, script) = &peer.server;
    let outcomes = |client: &mut Command| outcomes(client, &peer.rows());
    let columns = [
        outcomes(peer.client.command().arg(url(&ours)))?,
        outcomes(peer.client.command().arg(&our_server).arg("--stdio"))?,
        outcomes(our_client().arg(url(&theirs)))?,
        outcomes(our_client().arg(program).args(script).arg("--stdio"))?,
    ];
    let columns: Vec<_> = COLUMNS.into_iter().zip(columns).collect();
    table(peer.name, &peer.rows(), &columns)
}

/// Runs a program, and returns the outcome of each row that it prints.
pub fn outcomes(client: &mut Command, rows: &[&str]) -> Result<Vec<String>> {
    let said = output(client)?;
    let mut outcomes = Vec::new();
    for (row, line) in rows.iter().zip(said.lines().chain(std::iter::repeat(""))) {
        match line.split_once('\t') {
            Some((said, outcome)) if said == *row => outcomes.push(outcome.to_owned()),
            _ => {
                return Err(
                    format!("the program printed {line:?}, expected the row {row:?}").into()
                );
            }
        }
    }
    Ok(outcomes)
}

/// Prints the outcome of each row, and fails if one did not pass.
pub fn report(
    name: &str,
    rows: &[&str],
    outcomes: &[String],
    passed: impl Fn(&str) -> bool,
) -> Result {
    println!("\n  {name}");
    for (row, outcome) in rows.iter().zip(outcomes) {
        println!("  {row:<28}{outcome}");
    }
    match outcomes.iter().filter(|outcome| !passed(outcome)).count() {
        0 => Ok(()),
        failed => Err(format!("{failed} of {} rows failed", rows.len()).into()),
    }
}

/// Prints the outcome of each row in each column, and fails if one is not `ok`. A column is a name
/// and its outcomes.
fn table(name: &str, rows: &[&str], columns: &[(&str, Vec<String>)]) -> Result {
    let mut wrong = Vec::new();
    print!("\n  {name:<14}");
    for (column, _) in columns {
        print!("{column:>19}");
    }
    println!();
    for (n, row) in rows.iter().enumerate() {
        print!("  {row:<14}");
        for (column, outcomes) in columns {
            match outcomes.get(n).map_or("", String::as_str) {
                "ok" => print!("{:>19}", "ok"),
                why => {
                    wrong.push(format!("{row}, {column}: {why}"));
                    print!("{:>19}", "FAILED");
                }
            }
        }
        println!();
    }
    if wrong.is_empty() {
        return Ok(());
    }
    for why in &wrong {
        println!("  {why}");
    }
    Err(format!("{name}: {} of {} cells failed", wrong.len(), rows.len() * columns.len()).into())
}

/// The rows of tasks, in the order of `interop/README.md`.
const TASK_ROWS: [&str; 3] = ["task", "question", "cancel"];

/// Runs the rows of tasks with the SDKs that have the extension.
fn tasks() -> Result {
    let bin = build()?;
    let (ours, rmcp, fastmcp) = (bin.join("interop-tasks"), rmcp()?.join("tasks"), "fastmcp");
    let python = python(fastmcp)?;
    let (node, typescript) = npm_programs("typescript")?;
    let command = |program: &Path, script: PathBuf| {
        let mut command = Command::new(program);
        command.arg(script);
        command
    };
    let fastmcp = |file| command(&python, script(fastmcp, file));
    let with = |mut client: Command, mut server: Command| -> Result<Vec<String>> {
        let server = Server::start(&mut server)?;
        let url = format!("http://127.0.0.1:{}/mcp", server.port);
        outcomes(client.arg(url), &TASK_ROWS)
    };
    let (our_client, our_server) = (|| Command::new(&ours), || command(&ours, "serve".into()));
    let [client, client_stdio, server, _] = COLUMNS;
    let rmcp_columns = [
        (client, with(Command::new(&rmcp), our_server())?),
        (server, with(our_client(), command(&rmcp, "serve".into()))?),
    ];
    table("rmcp", &TASK_ROWS, &rmcp_columns)?;
    // Over HTTP, its client does not send the header `Mcp-Name` of requests about a task.
    let over_stdio = outcomes(fastmcp("client.py").arg(&ours).arg("--stdio"), &TASK_ROWS)?;
    let fastmcp_columns =
        [(client_stdio, over_stdio), (server, with(our_client(), fastmcp("server.py"))?)];
    table("FastMCP", &TASK_ROWS, &fastmcp_columns)?;
    // The package has no server for revision 2026-07-28.
    let ext_tasks = command(&node, typescript.join("tasks.mjs"));
    table("ext-tasks", &TASK_ROWS, &[(client, with(ext_tasks, our_server())?)])
}

/// Runs the rows, and books a table at the quickstart server with the Python SDK's client.
fn with_python() -> Result {
    with(&Peer::python()?)?;
    let examples = build()?;
    let (secret, quickstart) =
        ("Zm9yIHRlc3RzIG9ubHksIG5vdCBhIHNlY3JldCBhdCBhbGw", examples.join("examples/quickstart"));
    let mut ours = Command::new(&quickstart);
    let ours = Server::start(ours.arg("--replica").env("BOOKING_SECRET", secret).env("PORT", "0"))?;
    let mut booking = Command::new(python("python")?);
    step(
        booking
            .arg(script("python", "booking.py"))
            .arg(format!("http://127.0.0.1:{}/mcp", ours.port)),
    )
}

/// Lists and calls the tools of the fixture server with the MCP Inspector.
fn with_inspector() -> Result {
    let (node, inspector) = inspector()?;
    let bin = build()?;
    println!("\ninterop: the MCP Inspector on our fixture server");
    let mut server = Command::new(bin.join("conformance-server"));
    let server = Server::start_on(server.stdout(Stdio::null()), free_port()?)?;
    let inspect = |era: &str, method: &[&str]| -> Result<Value> {
        let mut command = Command::new(&node);
        command.arg(&inspector).arg("--cli").arg(format!("http://127.0.0.1:{}/mcp", server.port));
        command.args(["--protocol-era", era, "--quiet", "--format", "json", "--method"]);
        // Keeps the Inspector's settings separate from the user's own.
        command.args(method).env("HOME", scratch("inspector")?);
        let said: Value = serde_json::from_str(&output(&mut command)?)?;
        Ok(said["result"].clone())
    };
    for era in ["modern", "legacy"] {
        let listed = inspect(era, &["tools/list", "--strict"])?;
        let tools = listed["tools"].as_array().map_or(0, Vec::len);
        if tools == 0 {
            return Err(format!("the Inspector lists no tools ({era}): {listed}").into());
        }
        let called = inspect(era, &["tools/call", "--tool-name", "test_simple_text"])?;
        if called["content"][0]["text"] != "This is a simple text response for testing." {
            return Err(format!("the Inspector's call ({era}) returned {called}").into());
        }
        println!("  ok, {era}: {tools} tools listed, their schemas valid, one called");
    }
    Ok(())
}
