//! Bearer tokens that expire or are rejected, and a source of new ones.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use futures_util::StreamExt;
use futures_util::future::join_all;
use http::{Response, StatusCode, header};
use mrtr::client::BoxError;
use mrtr::http::{Challenge, Endpoint, HttpClient};
use mrtr::schema::subscription::SubscriptionFilter;
use mrtr::{CallError, Client, Context, Server, Tool};
use serde_json::json;
use tokio::sync::Semaphore;

const CHALLENGE: &str = r#"Bearer resource_metadata="https://booking.example/.well-known/x""#;

/// A server that accepts one bearer token, and counts its requests.
struct ProtectedServer {
    url: String,
    valid: Arc<Mutex<&'static str>>,
    requests: Arc<AtomicUsize>,
}

impl ProtectedServer {
    /// Starts a server that rejects other tokens with `rejection`, and with `challenge` unless it
    /// is empty.
    async fn serve(rejection: StatusCode, challenge: &'static str) -> Self {
        let valid = Arc::new(Mutex::new("first"));
        let requests = Arc::<AtomicUsize>::default();
        let (accepted, counter) = (Arc::clone(&valid), Arc::clone(&requests));
        let guard = from_fn(move |request: Request, next: Next| {
            counter.fetch_add(1, Ordering::SeqCst);
            let sent = request.headers().get(header::AUTHORIZATION);
            let expected = format!("Bearer {}", accepted.lock().unwrap());
            let is_valid = sent.is_some_and(|sent| sent == expected.as_str());
            async move {
                if is_valid {
                    return next.run(request).await;
                }
                let response = Response::builder().status(rejection);
                let response = if challenge.is_empty() {
                    response
                } else {
                    response.header(header::WWW_AUTHENTICATE, challenge)
                };
                response.body(Body::from("no")).unwrap()
            }
        });
        let tool = Tool::new("t", "", async |_: Context| "done");
        let server = Server::builder("test", "1")
            .ephemeral_key()
            .tool(tool)
            .allow_anonymous()
            .build()
            .unwrap();
        let app = Router::new().route_service("/mcp", Endpoint::new(server)).layer(guard);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, valid, requests }
    }

    /// Creates a client whose token source returns these tokens in order. The source records the
    /// challenge of each request for a token.
    fn client(&self, tokens: &'static [&'static str]) -> (Client<HttpClient>, Challenges) {
        let challenges = Challenges::default();
        let recorded = Arc::clone(&challenges);
        let source = move |challenge| {
            let mut recorded = recorded.lock().unwrap();
            let token = tokens.get(recorded.len()).ok_or("no user is logged in");
            recorded.push(challenge);
            async move {
                // Lets other calls wait for the same token.
                tokio::task::yield_now().await;
                Ok::<_, BoxError>((*token?).to_owned())
            }
        };
        let http = HttpClient::builder(&self.url).bearer_from(source).build().unwrap();
        (Client::builder(http).build(), challenges)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Fails a test that would never end.
async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.unwrap()
}

type Challenges = Arc<Mutex<Vec<Option<Challenge>>>>;

async fn call(client: &Client<HttpClient>) -> Result<String, CallError> {
    Ok(client.call_tool("t", json!({})).await?.text())
}

#[tokio::test]
async fn expired_token_is_replaced_once_for_all_waiting_calls() {
    let server = ProtectedServer::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let (client, challenges) = server.client(&["first", "second"]);
    for _ in 0..3 {
        assert_eq!(call(&client).await.unwrap(), "done");
    }
    assert_eq!(*challenges.lock().unwrap(), [None], "the token is reused");
    *server.valid.lock().unwrap() = "second";
    let calls = join_all((0..10).map(|_| call(&client))).await;
    assert!(calls.into_iter().all(|called| called.unwrap() == "done"));
    let challenges = challenges.lock().unwrap();
    let [None, Some(challenge)] = challenges.as_slice() else { unreachable!("{challenges:?}") };
    assert_eq!((challenge.status, challenge.www_authenticate.as_str()), (401, CHALLENGE));
}

#[tokio::test]
async fn forbidden_token_is_replaced_only_after_a_challenge() {
    let scope = r#"Bearer error="insufficient_scope", scope="write""#;
    let server = ProtectedServer::serve(StatusCode::FORBIDDEN, scope).await;
    let (client, challenges) = server.client(&["reads", "first"]);
    assert_eq!(call(&client).await.unwrap(), "done");
    let challenge = challenges.lock().unwrap().last().cloned().unwrap().unwrap();
    assert_eq!((challenge.status, challenge.www_authenticate.as_str()), (403, scope));
    // Without a challenge, a 403 has another reason than the token.
    let server = ProtectedServer::serve(StatusCode::FORBIDDEN, "").await;
    let (client, challenges) = server.client(&["reads", "first"]);
    let error = call(&client).await.unwrap_err();
    assert_eq!(error.as_transport_error().unwrap().status(), Some(403));
    assert_eq!((challenges.lock().unwrap().len(), server.requests()), (1, 1));
}

/// A server that rejects every token gets three requests for each call.
#[tokio::test]
async fn repeated_rejections_end_the_call_with_the_challenge() {
    let server = ProtectedServer::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let (client, challenges) = server.client(&["wrong 1", "wrong 2", "wrong 3", "first"]);
    let error = call(&client).await.unwrap_err();
    let rejected = error.as_transport_error().unwrap();
    assert_eq!((rejected.status(), rejected.www_authenticate()), (Some(401), Some(CHALLENGE)));
    assert!(!rejected.is_not_sent() && rejected.is_protocol(), "{error}");
    assert_eq!((challenges.lock().unwrap().len(), server.requests()), (3, 3));
    // The next call begins with a new token.
    assert_eq!(call(&client).await.unwrap(), "done");
}

#[tokio::test]
async fn request_without_a_token_is_not_sent() {
    let server = ProtectedServer::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let (client, challenges) = server.client(&[]);
    // A failed token source is not retried: it may have prompted the user.
    let error = call(&client.with_retries(3)).await.unwrap_err();
    let unsent = error.as_transport_error().unwrap();
    assert!(unsent.is_not_sent(), "{error}");
    let source = std::error::Error::source(unsent).unwrap().to_string();
    assert_eq!(source, "no user is logged in");
    assert_eq!((challenges.lock().unwrap().len(), server.requests()), (1, 0));
}

/// Dropping one of the waiting calls neither cancels the token source nor calls it again.
#[tokio::test]
async fn token_source_continues_after_a_waiting_call_is_dropped() {
    let server = ProtectedServer::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let (requested, go) = (Arc::<AtomicUsize>::default(), Arc::new(Semaphore::new(0)));
    let (count, wait) = (Arc::clone(&requested), Arc::clone(&go));
    let http = HttpClient::builder(&server.url).bearer_from(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        let wait = Arc::clone(&wait);
        async move {
            wait.acquire().await?.forget();
            Ok("first".to_owned())
        }
    });
    let client = Client::builder(http.build().unwrap()).build();
    let mut calls: Vec<_> = (0..3).map(|_| Box::pin(call(&client))).collect();
    for call in &mut calls {
        assert!(futures_util::poll!(call).is_pending());
    }
    drop(calls.remove(0));
    go.add_permits(1);
    let called = bounded(join_all(calls)).await;
    assert!(called.into_iter().all(|called| called.unwrap() == "done"));
    assert_eq!(requested.load(Ordering::SeqCst), 1);
}

/// The user is prompted once, and the refusal counts for all waiting calls.
#[tokio::test]
async fn token_source_failure_fails_all_waiting_calls() {
    let server = ProtectedServer::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let (client, challenges) = server.client(&["wrong"]);
    let errors = join_all((0..10).map(|_| call(&client))).await;
    for error in errors.into_iter().map(Result::unwrap_err) {
        // The error keeps the server's challenge.
        let rejected = error.as_transport_error().unwrap();
        assert_eq!((rejected.status(), rejected.www_authenticate()), (Some(401), Some(CHALLENGE)));
        assert_eq!(
            std::error::Error::source(rejected).unwrap().to_string(),
            "no user is logged in"
        );
        assert!(rejected.is_protocol(), "{error}");
    }
    // A call that was rejected after the others may have called the source again.
    assert!(challenges.lock().unwrap().len() < 10);
}

/// While the source replaces a token that one call needs, other calls use the current one.
#[tokio::test]
async fn calls_do_not_wait_for_a_token_that_they_do_not_need() {
    let server = ProtectedServer::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let requested = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&requested);
    let http = HttpClient::builder(&server.url).bearer_from(move |_| {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if first { Ok("first".to_owned()) } else { std::future::pending().await } }
    });
    let client = Client::builder(http.build().unwrap()).build();
    call(&client).await.unwrap();
    *server.valid.lock().unwrap() = "second";
    let mut rejected = Box::pin(call(&client));
    while requested.load(Ordering::SeqCst) < 2 {
        assert!(futures_util::poll!(&mut rejected).is_pending());
        tokio::task::yield_now().await;
    }
    *server.valid.lock().unwrap() = "first";
    assert_eq!(call(&client).await.unwrap(), "done");
}

/// A subscription does not reconnect forever without a token: its stream ends with the error.
#[tokio::test]
async fn subscription_ends_without_a_token() {
    let server = ProtectedServer::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let (client, challenges) = server.client(&[]);
    let listening = client.listen(&SubscriptionFilter::default()).unwrap();
    let events: Vec<_> = bounded(listening.collect()).await;
    assert!(matches!(events.as_slice(), [Err(_)]), "{events:?}");
    assert_eq!(challenges.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn token_source_panic_is_a_failure() {
    let server = ProtectedServer::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let http = HttpClient::builder(&server.url).bearer_from(async |_| panic!("on purpose"));
    let client = Client::builder(http.build().unwrap()).build();
    for _ in 0..2 {
        let error = call(&client).await.unwrap_err();
        assert!(error.as_transport_error().unwrap().is_not_sent(), "{error}");
    }
}

#[tokio::test]
async fn token_is_not_printed_and_must_be_a_valid_header_value() {
    let server = ProtectedServer::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let (client, _) = server.client(&["first"]);
    call(&client).await.unwrap();
    assert!(!format!("{:?}", client.transport()).contains("first"));
    let builder = HttpClient::builder("http://localhost:1/mcp");
    let http = builder.bearer_from(async |_| Ok("two\nlines".to_owned())).build().unwrap();
    let error = call(&Client::builder(http).build()).await.unwrap_err();
    assert!(error.to_string().contains("not a valid header value"), "{error}");
    assert!(!error.to_string().contains("lines"), "{error}");
}
