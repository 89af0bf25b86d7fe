//! The server of the example `apps`, its UI resource as our client reads it, and two origins that a
//! view tries to reach: `apps NODE FOLDER CHROMIUM [SCREENSHOT]`, with the installed folder
//! `interop/apps`. `interop/README.md` describes the rows and the output.

#[path = "../../../../../examples/apps/main.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod example;

use std::error::Error;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mrtr::Client;
use mrtr::apps::ContentSecurityPolicy;
use mrtr::http::{Endpoint, HttpClient, ServeOptions};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The longest time for all rows.
const TIMEOUT: Duration = Duration::from_secs(100);

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the output of a program")]
async fn main() -> Result {
    let usage = "usage: apps NODE FOLDER CHROMIUM [SCREENSHOT]";
    let mut args = std::env::args().skip(1);
    let (Some(node), Some(folder)) = (args.next(), args.next()) else { return Err(usage.into()) };
    let url = serve().await?;
    let (declared, undeclared) = (Origin::serve().await?, Origin::serve().await?);
    let input = json!({
        "url": url,
        "document": document(&url).await?,
        "probe": probe(&declared.url, &undeclared.url),
        "undeclared": undeclared.url,
    });
    let mut host = Command::new(node);
    host.arg(PathBuf::from(folder).join("host.mjs")).args(args).kill_on_drop(true);
    let mut host = host.stdin(Stdio::piped()).spawn()?;
    let mut stdin = host.stdin.take().ok_or("it has no stdin")?;
    stdin.write_all(input.to_string().as_bytes()).await?;
    drop(stdin);
    let status = timeout(TIMEOUT, host.wait()).await.map_err(|_| "the host does not end")??;
    if !status.success() {
        return Err(format!("the host ended with {status}").into());
    }
    let requests = (declared.requests(), undeclared.requests());
    let outcome = match requests {
        (1.., 0) => "ok".to_owned(),
        _ => format!("{} requests to the declared origin, {} to the other", requests.0, requests.1),
    };
    println!("requests\t{outcome}");
    Ok(())
}

/// Serves the example, and returns its URL.
async fn serve() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    let endpoint = Endpoint::new(example::server()?);
    let forever = std::future::pending();
    tokio::spawn(mrtr::http::serve(listener, endpoint, ServeOptions::default(), forever));
    Ok(url)
}

/// Reads the UI resource of the first tool.
async fn document(url: &str) -> Result<Value> {
    let client = Client::builder(HttpClient::builder(url).build()?).with_apps().build();
    let tools = client.list_tools().await?;
    let tool = tools.first().ok_or("the server has no tool")?;
    let found = client.read_ui_resource(tool).await?.ok_or("the tool has no UI resource")?;
    let policy = found.csp_header();
    Ok(json!({ "uri": found.uri, "html": found.html, "policy": policy }))
}

/// A document that tries to reach two origins in all ways, one of them declared.
fn probe(declared: &str, undeclared: &str) -> Value {
    let html = include_str!("probe.html");
    let html = html.replace("DECLARED", declared).replace("OTHER", undeclared);
    let policy = ContentSecurityPolicy::default().with_connect_domains([declared]).to_header();
    json!({ "html": html, "policy": policy })
}

/// A server that counts its requests.
struct Origin {
    url: String,
    requests: Arc<AtomicUsize>,
}

impl Origin {
    async fn serve() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let count = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::ready("")
        };
        let app = axum::Router::new().fallback(count);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { url, requests })
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}
