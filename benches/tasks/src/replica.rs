//! A replica: a process that serves tools as tasks, and tells when they go on.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mrtr::tasks::{PostgresTaskStore, TaskPolicy};
use mrtr::{Context, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio_postgres::NoTls;

use crate::calls::Connection;
use crate::steps::builder;
use crate::{Args, Result};

#[derive(Deserialize, JsonSchema)]
struct Pace {
    /// The time that a step takes.
    millis: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Answer {
    number: u64,
}

/// Serves until the process ends.
pub async fn run(args: &Args) -> Result {
    let store = PostgresTaskStore::connect(args.database()?, NoTls).await?;
    let walk = Tool::new("walk", "Runs steps for ever", walk).task(TaskPolicy::immediately());
    let ask = Tool::new("ask", "Asks for a number", ask).task(TaskPolicy::immediately());
    let server = builder("replicas").task_lease(args.seconds("lease")?).task_store(store);
    let server = server.tool(walk).tool(ask).build()?;
    Ok(mrtr::serve(server, ("127.0.0.1", args.get("port")?)).await?)
}

async fn walk(cx: Context, Pace { millis }: Pace) -> mrtr::Result<String> {
    for n in 0_u64.. {
        cx.step(format!("step-{n}"), async |_| {
            tell(n);
            tokio::time::sleep(Duration::from_millis(millis)).await;
            Ok(n)
        })
        .await?;
    }
    Ok(String::new())
}

async fn ask(cx: Context) -> mrtr::Result<String> {
    let Answer { number } = cx.elicit("number", "Which number?").await?;
    tell(number);
    Ok(number.to_string())
}

/// Prints a number and the time.
fn tell(number: u64) {
    let mut out = std::io::stdout().lock();
    drop(writeln!(out, "{number} {}", now()));
    drop(out.flush());
}

/// Returns the time in milliseconds.
pub fn now() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs_f64() * 1e3
}

/// A replica that this process has started.
pub struct Replica {
    pub child: Child,
    pub connection: Connection,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Replica {
    pub async fn start(database: &str, lease: f64) -> Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["replica", "--database", database, "--lease", &lease.to_string()]);
        command.args(["--port", &port.to_string()]).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
        for _ in 0..1_000 {
            if let Ok(connection) = Connection::open(port).await {
                return Ok(Self { child, connection, lines });
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err("the replica does not listen".into())
    }

    /// Waits until a handler has told a number, and returns it with the time.
    pub async fn told(&mut self) -> Result<(u64, f64)> {
        let line = self.lines.next_line().await?.ok_or("the replica has ended")?;
        let (number, time) = line.split_once(' ').ok_or("not a line of a replica")?;
        Ok((number.parse()?, time.parse()?))
    }

    pub fn id(&self) -> Result<String> {
        Ok(self.child.id().ok_or("the replica has ended")?.to_string())
    }

    /// Sends a signal.
    pub async fn signal(&self, name: &str) -> Result {
        let status = Command::new("kill").args([name, &self.id()?]).status().await?;
        status.success().then_some(()).ok_or_else(|| "kill has failed".into())
    }
}
