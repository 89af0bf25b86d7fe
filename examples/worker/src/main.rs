//! A suspended call in a database: one process begins the call and ends, the server restarts with a
//! new key, and a second process answers and finishes the call.
//!
//! `cargo run --manifest-path examples/worker/Cargo.toml` runs all parts as processes:
//!
//! - `worker begin FILE URL` calls the tool, and stores the suspended call in the SQLite database `FILE`.
//! - `worker finish FILE URL` answers the calls in `FILE`, and prints their results.
//! - `worker serve` is the server, with the key ring of the environment variable `RING`.

use std::error::Error;
use std::path::Path;
use std::process::{ExitCode, Stdio};

use mrtr::client::{CallOutcome, PendingCall};
use mrtr::http::{HttpConnection, ServeOptions};
use mrtr::schema::jsonrpc::code::INVALID_PARAMS;
use mrtr::schema::tool::CallToolResult;
use mrtr::{Client, Context, ElicitResult, KeyRing, Secret, Server, Tool};
use rusqlite::Connection;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["begin", file, url] => begin(Path::new(file), url).await?,
        ["finish", file, url] => finish(Path::new(file), url).await?,
        ["serve"] => serve().await?,
        [] => return show().await,
        _ => return Err("worker [begin FILE URL | finish FILE URL | serve]".into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// A client that supports forms, and accepts each one.
fn client(url: &str) -> Result<Client<HttpConnection>> {
    let client = mrtr::connect(url)?.on_form(async |question, form| {
        println!("finish  {} asks: {}", question.target, form.message);
        Ok(ElicitResult::accept(json!({ "yes": true }))?)
    });
    Ok(client.build())
}

fn open(file: &Path) -> Result<Connection> {
    let database = Connection::open(file)?;
    database
        .execute_batch("CREATE TABLE IF NOT EXISTS calls (id INTEGER PRIMARY KEY, waits TEXT)")?;
    Ok(database)
}

async fn begin(file: &Path, url: &str) -> Result<()> {
    match client(url)?.begin_tool("deploy", json!({ "service": "shop" })).await? {
        CallOutcome::Complete(result) => println!("begin   {}", result.text()),
        CallOutcome::InputRequired(call) | CallOutcome::Working(call) => {
            let waits = serde_json::to_string(&call)?;
            open(file)?.execute("INSERT INTO calls (waits) VALUES (?1)", [&waits])?;
            println!("begin   the call is suspended, in {} bytes", waits.len());
        }
    }
    Ok(())
}

async fn finish(file: &Path, url: &str) -> Result<()> {
    let database = open(file)?;
    let waiting: Vec<(i64, String)> = database
        .prepare("SELECT id, waits FROM calls")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let client = client(url)?;
    for (id, waits) in waiting {
        let call: PendingCall = serde_json::from_str(&waits)?;
        match client.finish::<CallToolResult>(call).await {
            Ok(result) => println!("finish  {}", result.text()),
            // Such as a state that has expired. It would be refused again.
            Err(error) if error.as_server_error().is_some_and(|e| e.code == INVALID_PARAMS) => {
                println!("finish  {error}");
            }
            // The server may accept it later. Others are not affected.
            Err(error) => {
                println!("finish  {error}: call {id} is kept");
                continue;
            }
        }
        database.execute("DELETE FROM calls WHERE id = ?1", [id])?;
    }
    Ok(())
}

#[derive(Deserialize, JsonSchema)]
struct Deploy {
    service: String,
}

#[derive(Deserialize, JsonSchema)]
struct Consent {
    /// Deploy?
    yes: bool,
}

async fn deploy(cx: Context, Deploy { service }: Deploy) -> mrtr::Result<String> {
    let build = cx.step("build", async |_| Ok(format!("{service}-{}", std::process::id()))).await?;
    let Consent { yes } = cx.elicit("sure", format!("Deploy {service}?")).await?;
    Ok(format!(
        "{service} is {}deployed, and was built by process {build}",
        if yes { "" } else { "not " }
    ))
}

/// Serves until the parent process ends.
async fn serve() -> Result<()> {
    let ring = KeyRing::from_env("https://deploy.example/mcp", "RING")?;
    let server = Server::builder("deploy", "1.0.0").key_ring(ring).allow_anonymous();
    let server = server.tool(Tool::new("deploy", "Deploys a service", deploy)).build()?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let end = async {
        let _ = tokio::io::stdin().read(&mut [0]).await;
    };
    mrtr::http::serve(listener, mrtr::endpoint(server)?, ServeOptions::default(), end).await?;
    Ok(())
}

/// Runs all parts, each in its own process.
async fn show() -> Result<ExitCode> {
    let (old, new) = (Secret::generate()?, Secret::generate()?);
    let (old, new) = (old.to_base64url(), new.to_base64url());
    let file = std::env::temp_dir().join(format!("worker-{}.sqlite", std::process::id()));

    let (server, url) = start(&format!("active {}", *old)).await?;
    run("begin", &file, &url).await?;
    stop(server).await?;
    println!("        the server restarts with a new key; the old one is retiring");
    let (server, url) = start(&format!("active {}\nretiring {}", *new, *old)).await?;
    let finished = run("finish", &file, &url).await?;
    stop(server).await?;
    std::fs::remove_file(&file)?;

    let ok = finished.contains("shop is deployed");
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn start(ring: &str) -> Result<(Child, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").env("RING", ring).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = command.kill_on_drop(true).spawn()?;
    let mut address = String::new();
    let output = server.stdout.take().ok_or("the server has no output")?;
    BufReader::new(output).read_line(&mut address).await?;
    println!("serve   process {}", server.id().unwrap_or_default());
    Ok((server, format!("http://{}/mcp", address.trim())))
}

async fn stop(mut server: Child) -> Result<()> {
    drop(server.stdin.take());
    server.wait().await?;
    Ok(())
}

async fn run(part: &str, file: &Path, url: &str) -> Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.arg(part).arg(file).arg(url).stderr(Stdio::inherit()).output().await?;
    let text = String::from_utf8(output.stdout)?;
    print!("{text}");
    if output.status.success() { Ok(text) } else { Err(format!("{part} failed").into()) }
}
