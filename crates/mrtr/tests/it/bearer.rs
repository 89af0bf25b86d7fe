//! Tokens that expire, and a source of others.

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

/// A server that takes one token, and counts what comes.
struct Guarded {
    url: String,
    valid: Arc<Mutex<&'static str>>,
    requests: Arc<AtomicUsize>,
}

impl Guarded {
    /// How it refuses other tokens: by this status, and with that challenge, if it is one.
    async fn serve(refusal: StatusCode, challenge: &'static str) -> Self {
        let valid = Arc::new(Mutex::new("first"));
        let requests = Arc::<AtomicUsize>::default();
        let (takes, counts) = (Arc::clone(&valid), Arc::clone(&requests));
        let guard = from_fn(move |request: Request, next: Next| {
            counts.fetch_add(1, Ordering::SeqCst);
            let told = request.headers().get(header::AUTHORIZATION);
            let wanted = format!("Bearer {}", takes.lock().unwrap());
            let fits = told.is_some_and(|told| told == wanted.as_str());
            async move {
                if fits {
                    return next.run(request).await;
                }
                let refused = Response::builder().status(refusal);
                let refused = if challenge.is_empty() {
                    refused
                } else {
                    refused.header(header::WWW_AUTHENTICATE, challenge)
                };
                refused.body(Body::from("no")).unwrap()
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

    /// A client with a source that gives these tokens, one after the other, and what the source was told.
    fn client(&self, tokens: &'static [&'static str]) -> (Client<HttpClient>, Told) {
        let told = Told::default();
        let asked = Arc::clone(&told);
        let source = move |refused| {
            let mut asked = asked.lock().unwrap();
            let token = tokens.get(asked.len()).ok_or("nobody is logged in");
            asked.push(refused);
            async move {
                // Others come in between.
                tokio::task::yield_now().await;
                Ok::<_, BoxError>((*token?).to_owned())
            }
        };
        let http = HttpClient::builder(&self.url).bearer_from(source).build().unwrap();
        (Client::builder(http).build(), told)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// What would go on for ever fails.
async fn bounded<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what).await.unwrap()
}

type Told = Arc<Mutex<Vec<Option<Challenge>>>>;

async fn call(client: &Client<HttpClient>) -> Result<String, CallError> {
    Ok(client.call_tool("t", json!({})).await?.text())
}

#[tokio::test]
async fn a_token_that_expires_is_replaced_once_for_all_that_wait() {
    let server = Guarded::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let (client, told) = server.client(&["first", "second"]);
    for _ in 0..3 {
        assert_eq!(call(&client).await.unwrap(), "done");
    }
    assert_eq!(*told.lock().unwrap(), [None], "it is kept");
    *server.valid.lock().unwrap() = "second";
    let calls = join_all((0..10).map(|_| call(&client))).await;
    assert!(calls.into_iter().all(|called| called.unwrap() == "done"));
    let told = told.lock().unwrap();
    let [None, Some(challenge)] = told.as_slice() else { unreachable!("{told:?}") };
    assert_eq!((challenge.status, challenge.authenticate.as_str()), (401, CHALLENGE));
}

#[tokio::test]
async fn a_token_that_may_not_do_it_is_replaced_if_the_server_asks_for_another() {
    let scope = r#"Bearer error="insufficient_scope", scope="write""#;
    let server = Guarded::serve(StatusCode::FORBIDDEN, scope).await;
    let (client, told) = server.client(&["reads", "first"]);
    assert_eq!(call(&client).await.unwrap(), "done");
    let told = told.lock().unwrap().last().cloned().unwrap().unwrap();
    assert_eq!((told.status, told.authenticate.as_str()), (403, scope));
    // It may be forbidden for another reason.
    let server = Guarded::serve(StatusCode::FORBIDDEN, "").await;
    let (client, told) = server.client(&["reads", "first"]);
    let error = call(&client).await.unwrap_err();
    assert_eq!(error.as_transport_error().unwrap().status(), Some(403));
    assert_eq!((told.lock().unwrap().len(), server.requests()), (1, 1));
}

/// A server that refuses everything is not asked for ever.
#[tokio::test]
async fn who_is_refused_again_is_told_what_the_server_wants() {
    let server = Guarded::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let (client, told) = server.client(&["wrong", "as wrong", "no better", "first"]);
    let error = call(&client).await.unwrap_err();
    let refused = error.as_transport_error().unwrap();
    assert_eq!((refused.status(), refused.authenticate()), (Some(401), Some(CHALLENGE)));
    assert!(!refused.is_unsent() && refused.is_protocol(), "{error}");
    assert_eq!((told.lock().unwrap().len(), server.requests()), (3, 3));
    // The next call begins with another.
    assert_eq!(call(&client).await.unwrap(), "done");
}

#[tokio::test]
async fn without_a_token_nothing_is_sent() {
    let server = Guarded::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let (client, told) = server.client(&[]);
    // To ask again is to disturb somebody again.
    let error = call(&client.with_retries(3)).await.unwrap_err();
    let unsent = error.as_transport_error().unwrap();
    assert!(unsent.is_unsent(), "{error}");
    let source = std::error::Error::source(unsent).unwrap().to_string();
    assert_eq!(source, "nobody is logged in");
    assert_eq!((told.lock().unwrap().len(), server.requests()), (1, 0));
}

/// Who gives up does not take the token of the others along, nor has somebody asked again.
#[tokio::test]
async fn a_source_goes_on_when_one_that_waits_gives_up() {
    let server = Guarded::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let (asked, go) = (Arc::<AtomicUsize>::default(), Arc::new(Semaphore::new(0)));
    let (count, wait) = (Arc::clone(&asked), Arc::clone(&go));
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
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// One person, asked once, says no once.
#[tokio::test]
async fn a_source_that_fails_fails_all_that_wait() {
    let server = Guarded::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let (client, told) = server.client(&["wrong"]);
    let errors = join_all((0..10).map(|_| call(&client))).await;
    for error in errors.into_iter().map(Result::unwrap_err) {
        // Whoever was answered before is told so.
        let refused = error.as_transport_error().unwrap();
        assert_eq!((refused.status(), refused.authenticate()), (Some(401), Some(CHALLENGE)));
        assert_eq!(std::error::Error::source(refused).unwrap().to_string(), "nobody is logged in");
        assert!(refused.is_protocol(), "{error}");
    }
    // Of those that were refused later than others, some may have asked again.
    assert!(told.lock().unwrap().len() < 10);
}

/// A token that may not do one thing is good for others, while somebody is asked for a better one.
#[tokio::test]
async fn requests_do_not_wait_for_a_token_they_do_not_need() {
    let server = Guarded::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let asked = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&asked);
    let http = HttpClient::builder(&server.url).bearer_from(move |_| {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if first { Ok("first".to_owned()) } else { std::future::pending().await } }
    });
    let client = Client::builder(http.build().unwrap()).build();
    call(&client).await.unwrap();
    *server.valid.lock().unwrap() = "second";
    let mut refused = Box::pin(call(&client));
    while asked.load(Ordering::SeqCst) < 2 {
        assert!(futures_util::poll!(&mut refused).is_pending());
        tokio::task::yield_now().await;
    }
    *server.valid.lock().unwrap() = "first";
    assert_eq!(call(&client).await.unwrap(), "done");
}

/// It is not asked for ever, at any pace: there is somebody to be told.
#[tokio::test]
async fn a_subscription_without_a_token_ends() {
    let server = Guarded::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let (client, told) = server.client(&[]);
    let listening = client.listen(&SubscriptionFilter::default()).unwrap();
    let heard: Vec<_> = bounded(listening.collect()).await;
    assert!(matches!(heard.as_slice(), [Err(_)]), "{heard:?}");
    assert_eq!(told.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_source_that_panics_is_one_that_fails() {
    let server = Guarded::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let http = HttpClient::builder(&server.url).bearer_from(async |_| panic!("on purpose"));
    let client = Client::builder(http.build().unwrap()).build();
    for _ in 0..2 {
        let error = call(&client).await.unwrap_err();
        assert!(error.as_transport_error().unwrap().is_unsent(), "{error}");
    }
}

#[tokio::test]
async fn a_token_is_not_printed_and_must_be_one() {
    let server = Guarded::serve(StatusCode::UNAUTHORIZED, CHALLENGE).await;
    let (client, _) = server.client(&["first"]);
    call(&client).await.unwrap();
    assert!(!format!("{:?}", client.transport()).contains("first"));
    let builder = HttpClient::builder("http://localhost:1/mcp");
    let http = builder.bearer_from(async |_| Ok("two\nlines".to_owned())).build().unwrap();
    let error = call(&Client::builder(http).build()).await.unwrap_err();
    assert!(error.to_string().contains("no header value"), "{error}");
    assert!(!error.to_string().contains("lines"), "{error}");
}
