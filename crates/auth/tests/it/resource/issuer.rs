//! An authorization server on the loopback interface.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::keys::Key;

pub(super) const METADATA: &str = "/.well-known/oauth-authorization-server";
pub(super) const KEYS: &str = "/keys";
pub(super) const INTROSPECTION: &str = "/introspect";

#[derive(Clone)]
pub(super) struct TestIssuer {
    pub(super) url: String,
    state: Arc<Mutex<State>>,
    /// Each response takes a permit while the gate is closed.
    gate: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    pages: HashMap<String, Page>,
    /// The requests, as path and body.
    requests: Vec<(String, String)>,
    authorizations: Vec<String>,
}

#[derive(Clone)]
struct Page {
    status: u16,
    header: Option<(&'static str, String)>,
    body: String,
}

impl TestIssuer {
    /// Starts an issuer that publishes `keys`, and knows no opaque token.
    pub(super) async fn start(keys: &[&Key]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let gate = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let issuer = Self { url, state: Arc::default(), gate };
        issuer.page(
            METADATA,
            200,
            json!({
                "issuer": issuer.url,
                "jwks_uri": format!("{}{KEYS}", issuer.url),
                "introspection_endpoint": format!("{}{INTROSPECTION}", issuer.url),
            }),
        );
        issuer.publish(keys);
        issuer.page(INTROSPECTION, 200, json!({ "active": false }));
        let server = issuer.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = server.clone();
                let service = service_fn(move |request| {
                    let server = server.clone();
                    async move { Ok::<_, Infallible>(server.respond(request).await) }
                });
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move { drop(connection.await) });
            }
        });
        issuer
    }

    pub(super) fn publish(&self, keys: &[&Key]) {
        let keys: Vec<_> = keys.iter().map(|key| key.jwk()).collect();
        self.page(KEYS, 200, json!({ "keys": keys }));
    }

    pub(super) fn page(&self, path: &str, status: u16, body: Value) {
        self.text(path, status, None, body.to_string());
    }

    pub(super) fn text(
        &self,
        path: &str,
        status: u16,
        header: Option<(&'static str, String)>,
        body: String,
    ) {
        self.state.lock().unwrap().pages.insert(path.to_owned(), Page { status, header, body });
    }

    /// Answers everything with 500.
    pub(super) fn fail(&self) {
        let mut state = self.state.lock().unwrap();
        state.pages.values_mut().for_each(|page| page.status = 500);
    }

    pub(super) fn recover(&self) {
        let mut state = self.state.lock().unwrap();
        state.pages.values_mut().for_each(|page| page.status = 200);
    }

    /// Lets no response out until the gate is opened.
    pub(super) fn close_gate(&self) {
        self.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub(super) fn open_gate(&self) {
        self.gate.add_permits(Semaphore::MAX_PERMITS);
    }

    /// Returns the number of requests for a path.
    pub(super) fn count(&self, path: &str) -> usize {
        let state = self.state.lock().unwrap();
        state.requests.iter().filter(|(requested, _)| requested == path).count()
    }

    pub(super) fn last_body(&self) -> String {
        self.state.lock().unwrap().requests.last().unwrap().1.clone()
    }

    pub(super) fn last_authorization(&self) -> String {
        self.state.lock().unwrap().authorizations.last().unwrap().clone()
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        let authorization = request.headers().get("authorization").cloned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let page = {
            let mut state = self.state.lock().unwrap();
            state.requests.push((path.clone(), String::from_utf8(body.to_vec()).unwrap()));
            let authorization = authorization.map(|value| value.to_str().unwrap().to_owned());
            state.authorizations.extend(authorization);
            state.pages.get(&path).cloned()
        };
        let _permit = self.gate.acquire().await.unwrap();
        let Some(page) = page else {
            return Response::builder().status(404).body(Full::default()).unwrap();
        };
        let mut response = Response::builder().status(page.status);
        if let Some((name, value)) = page.header {
            response = response.header(name, value);
        }
        response.body(Full::from(page.body)).unwrap()
    }
}
