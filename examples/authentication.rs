//! A server behind OAuth: an axum layer that checks bearer tokens and says who calls, the metadata that tells clients where to get
//! one (specification: "Authorization"), and what a state is worth in the hands of somebody else.
//!
//! `cargo run --example authentication`

use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use mrtr::client::CallOutcome;
use mrtr::http::{Endpoint, HttpClient};
use mrtr::schema::input::InputResponses;
use mrtr::schema::tool::CallToolResult;
use mrtr::{Client, Context, ElicitResult, Principal, Result, Server, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

const ISSUER: &str = "https://login.example";
const SCOPE: &str = "booking:write";

/// What a token says.
struct Claims {
    subject: &'static str,
    /// The application that the token was given to.
    client: &'static str,
    /// The server that the token is for.
    audience: String,
    scopes: Scopes,
}

/// What the caller may do: the layer leaves it with the request, and handlers look.
#[derive(Clone)]
struct Scopes(Vec<&'static str>);

/// Who may call which server.
struct Guard {
    resource: String,
    metadata: String,
}

impl Guard {
    /// In the place of a JWT library, which checks the signature, the issuer and the time.
    fn verified(&self, token: &str) -> Option<Claims> {
        let (subject, audience, scopes) = match token {
            "token-of-alice" => ("alice", self.resource.clone(), vec![SCOPE]),
            "token-of-bob" => ("bob", self.resource.clone(), vec![SCOPE]),
            "token-to-read" => ("alice", self.resource.clone(), vec!["booking:read"]),
            "token-for-another" => ("alice", "https://other.example/mcp".to_owned(), vec![SCOPE]),
            _ => return None,
        };
        Some(Claims { subject, client: "desk-app", audience, scopes: Scopes(scopes) })
    }

    /// Lets a request through, with who sent it.
    async fn check(&self, mut request: Request, next: Next) -> Response {
        let Some(token) = bearer(request.headers()) else {
            return self.refusal(StatusCode::UNAUTHORIZED, "");
        };
        // A token for another server is none here: whoever runs that one could call in the caller's name.
        let Some(claims) = self.verified(token).filter(|c| c.audience == self.resource) else {
            return self.refusal(StatusCode::UNAUTHORIZED, r#"error="invalid_token", "#);
        };
        if !claims.scopes.0.contains(&SCOPE) {
            return self.refusal(StatusCode::FORBIDDEN, r#"error="insufficient_scope", "#);
        }
        // A state is good for this issuer, subject and client only.
        let principal = Principal::new(ISSUER, claims.subject).with_client(claims.client);
        request.extensions_mut().insert(principal);
        request.extensions_mut().insert(claims.scopes);
        next.run(request).await
    }

    /// It says where tokens come from, and which scope to ask for.
    fn refusal(&self, status: StatusCode, error: &str) -> Response {
        let challenge =
            format!(r#"Bearer {error}scope="{SCOPE}", resource_metadata="{}""#, self.metadata);
        (status, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

#[derive(Deserialize, JsonSchema)]
struct Seat {
    place: String,
}

async fn book(cx: Context) -> Result<String> {
    let seat: Seat = cx.elicit("seat", "Inside or outside?").await?;
    let who = cx.principal().map_or("nobody", Principal::subject);
    let scopes = cx
        .parts()
        .extensions()
        .get::<Scopes>()
        .map_or_else(String::new, |scopes| scopes.0.join(" "));
    Ok(format!("a table {} for {who}, who may {scopes}", seat.place))
}

fn app(origin: &str) -> Result<Router, Box<dyn Error>> {
    let server = Server::builder("booking", "1.0.0")
        .require_principal()
        .ephemeral_key()
        .tool(Tool::new("book", "Books a table", book));
    let endpoint = Endpoint::new(server.build()?);
    let resource = format!("{origin}/mcp");
    // RFC 9728: between the host and the path of the resource.
    let place = "/.well-known/oauth-protected-resource/mcp";
    let metadata = json!({
        "resource": resource,
        "authorization_servers": [ISSUER],
        "scopes_supported": [SCOPE],
        "bearer_methods_supported": ["header"],
    });
    let metadata = ([(header::CONTENT_TYPE, "application/json")], metadata.to_string());
    let guard = Arc::new(Guard { resource, metadata: format!("{origin}{place}") });
    let check = from_fn(move |request: Request, next: Next| {
        let guard = Arc::clone(&guard);
        async move { guard.check(request, next).await }
    });
    // The layer is around the endpoint, and not around the metadata, which is for whoever has no token yet.
    let mcp = Router::new().route_service("/mcp", endpoint).layer(check);
    Ok(mcp.route(place, get(async || metadata)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let origin = format!("http://{}", listener.local_addr()?);
    let app = app(&origin)?;
    tokio::spawn(async move { axum::serve(listener, app).await });

    for (who, token) in [
        ("nobody", None),
        ("a made-up token", Some("x")),
        ("another server's", Some("token-for-another")),
        ("one to read", Some("token-to-read")),
    ] {
        let mut request = reqwest::Client::new().post(format!("{origin}/mcp"));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await?;
        let challenge = response.headers().get(header::WWW_AUTHENTICATE);
        let challenge = challenge.ok_or("no challenge")?.to_str()?;
        println!("{who:<18}{} {challenge}", response.status().as_u16());
    }
    let place = format!("{origin}/.well-known/oauth-protected-resource/mcp");
    println!("{:<18}{}", "where to go", reqwest::get(place).await?.text().await?);

    let (alice, bob) = (client(&origin, "token-of-alice")?, client(&origin, "token-of-bob")?);
    let CallOutcome::InputRequired(call) = alice.begin_tool("book", json!({})).await? else {
        return Err("it asks where".into());
    };
    println!("{:<18}is asked: {}", "alice", call.target());
    let mut answers = InputResponses::default();
    answers.push("seat", &ElicitResult::accept(json!({ "place": "outside" }))?)?;
    let stolen = bob.resume::<CallToolResult>(call.clone(), &answers).await;
    let refused = stolen.err().ok_or("bob went on with the call of alice")?;
    println!("{:<18}with the state of alice: {refused}", "bob");
    let CallOutcome::Complete(result) = alice.resume::<CallToolResult>(call, &answers).await?
    else {
        return Err("it does not ask again".into());
    };
    println!("{:<18}{}", "alice", result.text());
    Ok(())
}

/// A client that has a token. It can show forms.
fn client(origin: &str, token: &str) -> Result<Client<HttpClient>, Box<dyn Error>> {
    let mut bearer = HeaderValue::try_from(format!("Bearer {token}"))?;
    bearer.set_sensitive(true);
    let http = HttpClient::builder(format!("{origin}/mcp")).header(header::AUTHORIZATION, bearer);
    let client = Client::builder(http.build()?);
    Ok(client.on_form(async |_, _| Ok(ElicitResult::decline())).build())
}
