//! Three replicas as processes, and a load balancer that knows nothing of the protocol.

use std::error::Error;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::Response;
use mrtr::Secret;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

pub const NAMES: [char; 3] = ['A', 'B', 'C'];

pub struct Fleet {
    pub url: String,
    replicas: Mutex<Vec<Child>>,
    ports: Vec<u16>,
    http: reqwest::Client,
    next: AtomicUsize,
    /// The index of the replica that served each request of the call.
    served: Mutex<Vec<usize>>,
    ledger: PathBuf,
}

impl Fleet {
    /// Starts the replicas. `routing` says how the load balancer picks one.
    pub async fn start(routing: &str) -> Result<Arc<Self>, Box<dyn Error>> {
        let secret = Secret::generate()?.to_base64url();
        let ledger = std::env::temp_dir().join(format!("quickstart-{}", std::process::id()));
        std::fs::write(&ledger, "")?;
        let (mut replicas, mut ports) = (Vec::new(), Vec::new());
        for name in NAMES {
            let mut replica = Command::new(std::env::current_exe()?)
                .arg("--replica")
                .env("BOOKING_SECRET", secret.as_str())
                .env("BOOKING_LEDGER", &ledger)
                .env_remove("PORT")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let stdout = replica.stdout.take().ok_or("the replica has no stdout")?;
            let line = BufReader::new(stdout).lines().next_line().await?.unwrap_or_default();
            let port = line.strip_prefix("listening ").ok_or("the replica did not start")?;
            let pid = replica.id().unwrap_or_default();
            println!("  replica {name}      127.0.0.1:{port}, pid {pid}");
            ports.push(port.parse()?);
            replicas.push(replica);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        println!("  load balancer  {address}: {routing}, no shared store\n");
        let fleet = Arc::new(Self {
            url: format!("http://{address}/mcp"),
            replicas: Mutex::new(replicas),
            ports,
            http: reqwest::Client::new(),
            next: AtomicUsize::new(0),
            served: Mutex::default(),
            ledger,
        });
        let balancer = axum::Router::new().fallback(forward).with_state(Arc::clone(&fleet));
        tokio::spawn(async move { axum::serve(listener, balancer).await });
        Ok(fleet)
    }

    /// Returns which replica served each request.
    pub fn served(&self) -> Vec<usize> {
        lock(&self.served).clone()
    }

    /// Returns the steps that ran, in order.
    pub fn steps(&self) -> Vec<String> {
        let ledger = std::fs::read_to_string(&self.ledger).unwrap_or_default();
        ledger.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
    }

    /// Kills the replica that served the last request, and returns its index.
    pub fn kill_last(&self) -> Option<usize> {
        let last = self.served().last().copied()?;
        lock(&self.replicas).get_mut(last)?.start_kill().ok()?;
        Some(last)
    }

    /// Removes the record of steps. The replicas end with this process.
    pub fn stop(&self) {
        let _ = std::fs::remove_file(&self.ledger);
    }
}

/// Sends a request to a replica: by the session of a legacy client, or to the next one. If it is down, the request was not
/// received, and the one after it is tried.
async fn forward(
    State(fleet): State<Arc<Fleet>>,
    request: Request,
) -> Result<Response, StatusCode> {
    let (mut head, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
    head.headers.remove(header::HOST);
    let first = match head.headers.get("mcp-session-id") {
        Some(session) => session.as_bytes().iter().map(|byte| usize::from(*byte)).sum(),
        None => fleet.next.fetch_add(1, Ordering::Relaxed),
    };
    for attempt in 0..NAMES.len() {
        let replica = (first + attempt) % NAMES.len();
        let url = format!("http://127.0.0.1:{}{}", fleet.ports[replica], head.uri.path());
        let request = fleet.http.request(head.method.clone(), url);
        let request = request.headers(head.headers.clone()).body(body.clone());
        let answer = match request.send().await {
            Err(error) if error.is_connect() => continue,
            answer => answer.map_err(|_| StatusCode::BAD_GATEWAY)?,
        };
        let mut response = Response::builder().status(answer.status());
        for name in [header::CONTENT_TYPE, HeaderName::from_static("mcp-session-id")] {
            if let Some(value) = answer.headers().get(&name) {
                response = response.header(name, value);
            }
        }
        let is_call = body.windows(12).any(|part| part == b"\"tools/call\"");
        if is_call || head.headers.contains_key("last-event-id") {
            lock(&fleet.served).push(replica);
        }
        let kind = answer.headers().get(header::CONTENT_TYPE);
        if kind.is_some_and(|kind| kind == "text/event-stream") {
            show_stream(&fleet, replica, &head.headers);
            let body = Body::new(reqwest::Body::from(answer));
            return response.body(body).map_err(|_| StatusCode::BAD_GATEWAY);
        }
        let body = answer.text().await.map_err(|_| StatusCode::BAD_GATEWAY)?;
        if is_call {
            show(&fleet, replica, &body);
        }
        return response.body(Body::from(body)).map_err(|_| StatusCode::BAD_GATEWAY);
    }
    Err(StatusCode::SERVICE_UNAVAILABLE)
}

/// Prints which replica serves a stream, and what a client that resumes one brings along.
fn show_stream(fleet: &Fleet, replica: usize, headers: &HeaderMap) {
    let name = NAMES[replica];
    match headers.get("last-event-id") {
        None => println!("  stream         replica {name}"),
        Some(id) => {
            let (id, steps) = (String::from_utf8_lossy(id.as_bytes()), fleet.steps().join(", "));
            println!("  resumed        replica {name}; steps so far: {steps}");
            println!("                 event id: {} bytes: {id:.40}…", id.len());
        }
    }
}

/// Prints which replica served the request, which steps have run by now, and what the client carries on.
fn show(fleet: &Fleet, replica: usize, body: &str) {
    let (request, steps) = (fleet.served().len(), fleet.steps().join(", "));
    println!("  request {request}      replica {}; steps so far: {steps}", NAMES[replica]);
    let state = body.split(r#""requestState":""#).nth(1).and_then(|rest| rest.split('"').next());
    let state = state.map_or_else(
        || "complete: no state is left".to_owned(),
        |state| format!("state: {} bytes, sealed: {state:.20}…", state.len()),
    );
    println!("                 {state}");
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
