//! Three replicas as processes, and a round robin in front that knows nothing of the protocol.

use std::collections::HashSet;
use std::error::Error;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::Response;
use mrtr::Secret;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdin, Command};

use crate::show::Show;

pub struct Fleet {
    replicas: Vec<Replica>,
    shared: Arc<Shared>,
    address: String,
}

struct Replica {
    name: char,
    port: u16,
    pid: u32,
    child: tokio::sync::Mutex<Child>,
    /// The replica ends when this does.
    _stdin: ChildStdin,
}

/// What the round robin and the world outside write down.
#[derive(Default)]
struct Shared {
    ports: Mutex<Vec<u16>>,
    next: AtomicUsize,
    /// Which replica served each leg.
    served: Mutex<Vec<usize>>,
    /// Which steps ran: step, idempotency key, and by which replica.
    ran: Mutex<Vec<(String, String, usize)>>,
    killed: Mutex<Option<usize>>,
    rounds: Mutex<Vec<usize>>,
}

impl Fleet {
    pub async fn start(count: usize) -> Result<Self, Box<dyn Error>> {
        let secret = Secret::generate()?.to_base64url();
        let shared = Arc::new(Shared::default());
        let outside = TcpListener::bind("127.0.0.1:0").await?;
        let outside_url = format!("http://{}", outside.local_addr()?);
        let ledger = axum::Router::new()
            .route("/{replica}/{step}", axum::routing::post(write_down))
            .with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(outside, ledger).await });
        let mut replicas = Vec::new();
        for (at, name) in ('A'..).take(count).enumerate() {
            let mut child = Command::new(std::env::current_exe()?)
                .arg("--replica")
                .env("BOOKING_SECRET", secret.as_str())
                .env("BOOKING_OUTSIDE", format!("{outside_url}/{at}"))
                .env_remove("PORT")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let stdin = child.stdin.take().ok_or("the replica has no stdin")?;
            let mut lines =
                BufReader::new(child.stdout.take().ok_or("the replica has no stdout")?).lines();
            let first = lines.next_line().await?.ok_or("the replica ended before it listened")?;
            let port = first
                .strip_prefix("listening ")
                .ok_or("the replica said something else")?
                .parse()?;
            lock(&shared.ports).push(port);
            let pid = child.id().unwrap_or_default();
            replicas.push(Replica {
                name,
                port,
                pid,
                child: tokio::sync::Mutex::new(child),
                _stdin: stdin,
            });
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let proxy = axum::Router::new()
            .fallback(forward)
            .with_state((Arc::clone(&shared), reqwest::Client::new()));
        tokio::spawn(async move { axum::serve(listener, proxy).await });
        Ok(Self { replicas, shared, address })
    }

    /// Where the round robin listens.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn introduce(&self, show: &Show) {
        for replica in &self.replicas {
            show.line(
                &format!("replica {}", replica.name),
                &format!("127.0.0.1:{}  pid {}", replica.port, replica.pid),
            );
        }
        show.line("round robin", &format!("{}  no sticky sessions, no shared store", self.address));
    }

    /// The name of the replica that served the last leg.
    pub fn last_served(&self) -> char {
        lock(&self.shared.served).last().map_or('?', |at| self.replicas[*at].name)
    }

    /// The steps that ran since this was asked last.
    pub fn new_steps(&self, known: &mut usize) -> Vec<(String, char)> {
        let ran = lock(&self.shared.ran);
        let new = ran
            .iter()
            .skip(*known)
            .map(|(step, _, at)| (step.clone(), self.replicas[*at].name))
            .collect();
        *known = ran.len();
        new
    }

    pub fn record_round(&self, questions: usize) {
        lock(&self.shared.rounds).push(questions);
    }

    /// Kills the replica that served the last leg, and waits until it is gone.
    pub async fn kill_last(&self) -> Result<(char, u32), Box<dyn Error + Send + Sync>> {
        let at = *lock(&self.shared.served).last().ok_or("no leg was served")?;
        let replica = &self.replicas[at];
        let mut child = replica.child.lock().await;
        child.kill().await?;
        *lock(&self.shared.killed) = Some(at);
        Ok((replica.name, replica.pid))
    }

    /// What had to be true, and whether it was.
    pub fn judge(&self) -> Vec<(bool, String)> {
        let served = lock(&self.shared.served).clone();
        let ran = lock(&self.shared.ran).clone();
        let rounds = lock(&self.shared.rounds).clone();
        let killed = *lock(&self.shared.killed);
        let times = |step: &str| ran.iter().filter(|(name, ..)| name == step).count();
        let replicas: HashSet<_> = served.iter().collect();
        vec![
            (
                rounds == [2, 1],
                format!("two rounds of questions: two at once, then one (were {rounds:?})"),
            ),
            (
                served.len() == 3 && replicas.len() == 3,
                format!("three legs, on {} replicas", replicas.len()),
            ),
            (times("hold") == 1, format!("the table was held {} time", times("hold"))),
            (times("pay") <= 1, format!("the deposit was paid {} time", times("pay"))),
            (
                killed.is_some_and(|killed| {
                    served.last() != Some(&killed) && served.contains(&killed)
                }),
                "a replica was killed in mid-call, and another finished it".to_owned(),
            ),
        ]
    }

    pub async fn stop(self) {
        for replica in self.replicas {
            let _ = replica.child.into_inner().kill().await;
        }
    }
}

/// The world outside: writes down who did what.
async fn write_down(
    State(shared): State<Arc<Shared>>,
    Path((replica, step)): Path<(usize, String)>,
    headers: HeaderMap,
) {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    lock(&shared.ran).push((step, key.to_owned(), replica));
}

/// Sends a request to the next replica, as any load balancer would. A replica that is not there has
/// seen nothing, so the next one is tried.
async fn forward(
    State((shared, http)): State<(Arc<Shared>, reqwest::Client)>,
    request: Request,
) -> Result<Response, StatusCode> {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
    let ports = lock(&shared.ports).clone();
    for _ in 0..ports.len() {
        let at = shared.next.fetch_add(1, Ordering::Relaxed) % ports.len();
        let mut headers = head.headers.clone();
        headers.remove(header::HOST);
        let url = format!("http://127.0.0.1:{}{}", ports[at], head.uri.path());
        let sent =
            http.request(head.method.clone(), url).headers(headers).body(body.clone()).send().await;
        match sent {
            Err(error) if error.is_connect() => {}
            Err(_) => return Err(StatusCode::BAD_GATEWAY),
            Ok(answer) => {
                lock(&shared.served).push(at);
                let mut response = Response::builder().status(answer.status());
                for (name, value) in answer.headers() {
                    if ![
                        header::CONNECTION,
                        header::TRANSFER_ENCODING,
                        HeaderName::from_static("keep-alive"),
                    ]
                    .contains(name)
                    {
                        response = response.header(name, value);
                    }
                }
                let bytes = answer.bytes().await.map_err(|_| StatusCode::BAD_GATEWAY)?;
                return response.body(Body::from(bytes)).map_err(|_| StatusCode::BAD_GATEWAY);
            }
        }
    }
    Err(StatusCode::SERVICE_UNAVAILABLE)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
