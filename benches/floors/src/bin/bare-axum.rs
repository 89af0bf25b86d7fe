//! The workloads on axum.

use std::error::Error;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt as _;
use floors::{Floor, tools};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let floor = Arc::new(Floor::new(tools()));
    let app = axum::Router::new().route("/mcp", post(answer)).with_state(floor);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?.port());
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, app).await?;
    Ok(())
}

async fn answer(State(floor): State<Arc<Floor>>, body: Bytes) -> Response {
    match floor.answer(&body) {
        Ok(answer) => {
            let kind = if answer.events { "text/event-stream" } else { "application/json" };
            ([(header::CONTENT_TYPE, kind)], answer.body).into_response()
        }
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}
