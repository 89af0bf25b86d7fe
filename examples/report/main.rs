//! A report that takes a minute, as a task. It survives `kill -9`, and the days until it is approved.
//!
//! `cargo run --example report` serves it, and prints what to try by hand. With `-- --auto`, the program starts the server as a
//! process of its own, calls the tool, kills the server with SIGKILL in the middle of two steps, and restarts it each time. The
//! exit code is 0 only if every check at the end holds. `--postgres URL` keeps the tasks in PostgreSQL instead of a file.

mod office;
mod tool;

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mrtr::client::CallEvent;
use mrtr::http::ServeOptions;
use mrtr::schema::tasks::Task;
use mrtr::tasks::{PostgresTaskStore, SqliteTaskStore};
use mrtr::{ElicitResult, KeyRing, Secret, Server};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio_postgres::{Config, NoTls};

use crate::office::Office;

/// The steps of the tool.
const STEPS: usize = 6;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (mut auto, mut server, mut postgres) = (false, false, None);
    while let Some(arg) = args.next() {
        match &*arg {
            "--auto" => auto = true,
            // The process that `--auto` starts and kills.
            "--server" => server = true,
            "--postgres" => postgres = Some(args.next().ok_or("--postgres needs a URL")?),
            other => return Err(format!("unknown argument {other:?}").into()),
        }
    }
    if auto {
        return demonstrate(postgres).await;
    }
    let settings = if server { Settings::of_child()? } else { Settings::by_hand()? };
    settings.serve(postgres, !server).await?;
    Ok(ExitCode::SUCCESS)
}

/// The settings of a server process.
struct Settings {
    /// The tasks, the key ring, and the ledger of effects.
    folder: PathBuf,
    port: u16,
    /// The time that a step takes.
    step: Duration,
    /// The time after which a restarted server continues the tasks of the one that was killed.
    lease: Duration,
}

impl Settings {
    fn by_hand() -> Result<Self, Box<dyn Error>> {
        let folder = std::env::temp_dir().join("mrtr-report");
        std::fs::create_dir_all(&folder)?;
        let (step, lease) = (Duration::from_secs(10), Duration::from_secs(10));
        Ok(Self { folder, port: 3000, step, lease })
    }

    fn of_child() -> Result<Self, Box<dyn Error>> {
        let folder = std::env::var("REPORT_FOLDER")?.into();
        let port = std::env::var("REPORT_PORT")?.parse()?;
        let (step, lease) = (Duration::from_secs(1), Duration::from_secs(1));
        Ok(Self { folder, port, step, lease })
    }

    fn office(&self) -> Office {
        Office { ledger: self.folder.join("effects"), time: self.step }
    }

    /// Returns the key ring of this folder, and creates it first if there is none.
    fn key_ring(&self) -> Result<KeyRing, Box<dyn Error>> {
        let file = self.folder.join("ring");
        if !file.exists() {
            let mut new = std::fs::File::options();
            new.write(true).create_new(true);
            // Other users must not read the key.
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut new, 0o600);
            writeln!(new.open(&file)?, "active {}", *Secret::generate()?.to_base64url())?;
        }
        Ok(KeyRing::from_file("https://reports.example/mcp", file)?)
    }

    async fn serve(&self, postgres: Option<String>, explains: bool) -> Result<(), Box<dyn Error>> {
        let builder = Server::builder("reports", "1.0.0").task_lease(self.lease);
        let builder = match &postgres {
            Some(url) => {
                let config: Config = url.parse()?;
                PostgresTaskStore::migrate(&config, NoTls).await?;
                builder.task_store(PostgresTaskStore::connect(config, NoTls).await?)
            }
            None => builder.task_store(SqliteTaskStore::open(self.folder.join("tasks.sqlite"))?),
        };
        let server = tool::server(builder, self.key_ring()?, self.office())?;
        if explains {
            self.explain(postgres.as_deref());
            return Ok(mrtr::serve(server, ("127.0.0.1", self.port)).await?);
        }
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await?;
        println!("listening {}", listener.local_addr()?.port());
        let endpoint = mrtr::endpoint(server.clone())?;
        tokio::spawn(async move { server.run_tasks().await });
        // Until the parent process ends.
        let end = async {
            let _ = tokio::io::stdin().read(&mut [0]).await;
        };
        Ok(mrtr::http::serve(listener, endpoint, ServeOptions::default(), end).await?)
    }

    fn explain(&self, postgres: Option<&str>) {
        let (folder, url) = (self.folder.display(), format!("http://127.0.0.1:{}/mcp", self.port));
        let store =
            postgres.map_or_else(|| format!("{folder}/tasks.sqlite"), |_| "PostgreSQL".into());
        let again = postgres.map_or_else(String::new, |url| format!(" -- --postgres {url}"));
        let pid = std::process::id();
        println!(
            "
  The server is at {url}. Its tasks are in {store}.

  In a second terminal, call the tool, and leave as soon as the call is a task:
    cargo run -p mrtr-cli -- call {url} report --arg month=2026-10 --detach task.json

  Kill the server in the middle of a step, and start it again here:
    kill -9 {pid}
    cargo run --example report{again}

  In the second terminal, return to the call, and answer its question:
    cargo run -p mrtr-cli -- call {url} --resume task.json

  Each step has one effect: {folder}/effects
  A step that was in flight begins twice, with one idempotency key.
"
        );
    }
}

/// A server as a process, which is killed and started again.
struct Process {
    child: Child,
    folder: PathBuf,
    postgres: Option<String>,
    port: u16,
}

impl Process {
    async fn start(folder: &Path, postgres: Option<String>) -> Result<Self, Box<dyn Error>> {
        let (child, port) = Self::spawn(folder, postgres.as_deref(), 0).await?;
        Ok(Self { child, folder: folder.to_owned(), postgres, port })
    }

    async fn spawn(
        folder: &Path,
        postgres: Option<&str>,
        port: u16,
    ) -> Result<(Child, u16), Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--server").args(postgres.iter().flat_map(|url| ["--postgres", *url]));
        command.env("REPORT_FOLDER", folder).env("REPORT_PORT", port.to_string());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let stdout = child.stdout.take().ok_or("the server has no stdout")?;
        let line = BufReader::new(stdout).lines().next_line().await?.unwrap_or_default();
        let port = line.strip_prefix("listening ").ok_or("the server did not start")?.parse()?;
        println!("  server         127.0.0.1:{port}, pid {}", child.id().unwrap_or_default());
        Ok((child, port))
    }

    /// Kills the server with SIGKILL while a step is in flight whose request contains `what`, and starts it again. Returns the
    /// request.
    async fn kill_in(&mut self, what: &str, office: &Office) -> Result<String, Box<dyn Error>> {
        let in_flight =
            || Ok::<_, std::io::Error>(office.entries()?.in_flight().map(str::to_owned));
        let request = loop {
            if let Some(request) = in_flight()?.filter(|request| request.contains(what)) {
                break request;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let pid = self.child.id().ok_or("the server has ended by itself")?;
        self.child.kill().await?;
        println!("  SIGKILL        pid {pid}, while it was to {request}");
        if in_flight()?.as_ref() != Some(&request) {
            return Err(format!("{request} had its effect before the server was killed").into());
        }
        (self.child, _) = Self::spawn(&self.folder, self.postgres.as_deref(), self.port).await?;
        Ok(request)
    }
}

/// What the client has seen of the call.
#[derive(Default)]
struct Seen {
    ids: BTreeSet<String>,
    /// The last status, with its message.
    status: String,
    questions: usize,
}

impl Seen {
    fn update(&mut self, task: &Task) {
        if self.ids.insert(task.task_id.clone()) {
            println!("  task           {}", task.task_id);
        }
        let message = task.status_message.as_deref().unwrap_or_default();
        let status = format!("{}  {message}", task.status.as_str());
        if self.status != status {
            println!("  status         {status}");
            self.status = status;
        }
    }
}

async fn demonstrate(postgres: Option<String>) -> Result<ExitCode, Box<dyn Error>> {
    println!("\n  One call as a task, over two deaths of its server.\n");
    let folder = std::env::temp_dir().join(format!("mrtr-report-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let office = Office { ledger: folder.join("effects"), time: Duration::ZERO };
    let mut server = Process::start(&folder, postgres).await?;

    let seen = Arc::new(Mutex::new(Seen::default()));
    let (asked, updated) = (Arc::clone(&seen), Arc::clone(&seen));
    let client = mrtr::connect(format!("http://127.0.0.1:{}/mcp", server.port))?
        .with_tasks()
        .on_form(move |_, form| {
            lock(&asked).questions += 1;
            let answer = json!({ "send": true });
            println!("  question       {} {answer}", form.message);
            std::future::ready(ElicitResult::accept(answer).map_err(Into::into))
        })
        .on_event(move |event| {
            if let CallEvent::TaskUpdated { task, .. } = event {
                lock(&updated).update(task);
            }
        })
        .build();

    let arguments = json!({ "month": "2026-10" });
    println!("  call           report {arguments}");
    let call = async { Ok(client.call_tool("report", arguments).await?.text()) };
    let kills = async {
        let one = server.kill_in("returns", &office).await?;
        Ok::<_, Box<dyn Error>>([one, server.kill_in("board", &office).await?])
    };
    let (result, killed_in) = tokio::try_join!(call, kills)?;
    println!("\n  {result}\n");

    let (entries, seen) = (office.entries()?, lock(&seen));
    std::fs::remove_dir_all(&folder)?;
    println!("  A step in flight at a kill begins again, with the same idempotency key:");
    for (request, attempts) in &entries.attempts {
        println!("    {attempts} × {request}");
    }
    println!();
    let may_begin = |request| 1 + killed_in.iter().filter(|killed| *killed == request).count();
    let repeats = entries.attempts.iter().all(|(request, count)| *count <= may_begin(request));
    let one_key = entries.keys.len() == STEPS && entries.keys.values().all(|keys| keys.len() == 1);
    let once = entries.effects.len() == STEPS && entries.effects.values().all(|count| *count == 1);
    Ok(report(&[
        (killed_in.len() == 2, "the server was killed twice, each time in the middle of a step"),
        (seen.ids.len() == 1, "the task kept its id"),
        (seen.questions == 1, "the question was asked once"),
        (repeats, "only steps that were in flight at a kill began twice"),
        (one_key, "each step had one idempotency key"),
        (once, "each step had its effect once"),
        (result == "2026-10: 23000 €, sent to finance and board.", "the result is right"),
    ]))
}

/// Prints the checks. The exit code is 0 only if all hold.
fn report(checks: &[(bool, &str)]) -> ExitCode {
    for (holds, check) in checks {
        println!("  {} {check}", if *holds { "✓" } else { "✗" });
    }
    println!();
    if checks.iter().all(|(holds, _)| *holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
