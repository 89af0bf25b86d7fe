//! A client that asks at the terminal. The server is a URL, or a program that serves over stdio:
//!
//! - `cargo run --example client -- SERVER` lists the tools of a server.
//! - `cargo run --example client -- SERVER TOOL '{"name": "Ada"}'` calls one.

use std::error::Error;

use mrtr::client::Transport;
use mrtr::http::{HttpClient, HttpConnection};
use mrtr::stdio::{ChildConnection, ChildServer};
use mrtr::terminal::{sanitize, sanitize_line};
use mrtr::{Client, ClientBuilder};
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let server = args.next().ok_or("usage: client SERVER [TOOL [ARGUMENTS]]")?;
    let (tool, arguments) = (args.next(), args.next());
    let arguments = arguments.map_or_else(|| Ok(Value::default()), |text| text.parse())?;
    if server.starts_with("http") {
        // The token of `examples/axum.rs`, for example.
        let http = HttpClient::builder(&server);
        let http = match std::env::var("TOKEN") {
            Ok(token) => http.bearer(&token)?,
            Err(_) => http,
        };
        let connection = HttpConnection::new(http.build()?);
        run(Client::builder(connection), &server, tool, arguments).await
    } else {
        let child = ChildConnection::new(ChildServer::new(&server, [""; 0]));
        run(Client::builder(child), &server, tool, arguments).await
    }
}

async fn run(
    client: ClientBuilder<impl Transport>,
    server: &str,
    tool: Option<String>,
    arguments: Value,
) -> Result<(), Box<dyn Error>> {
    // Handlers for forms and URLs. What has no handler is not declared, and servers do not ask it.
    let client = client
        .answer_at_terminal(server)
        .on_progress(|progress| eprintln!("progress: {}", progress.progress))
        .build();
    let Some(tool) = tool else {
        for tool in client.list_tools().await? {
            let line = format!("{}: {}", tool.name, tool.description.unwrap_or_default());
            println!("{}", sanitize_line(&line));
        }
        return Ok(());
    };
    // Returns when the call is complete, however many rounds it takes.
    match client.call_tool(&tool, arguments).await {
        // A tool's own error is a result as well: the model should read it.
        Ok(result) if result.is_error => println!("the tool failed: {}", sanitize(&result.text())),
        // Text of a server must not control the terminal.
        Ok(result) => println!("{}", sanitize(&result.text())),
        // The server's refusal, with its code.
        Err(error) => match error.as_server_error() {
            Some(refusal) => {
                println!("the server refused: {} ({})", sanitize(&refusal.message), refusal.code);
            }
            None => return Err(error.into()),
        },
    }
    Ok(())
}
