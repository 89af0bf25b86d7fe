//! The workloads on hyper alone. With `--stdio`, on two blocking streams.

use std::convert::Infallible;
use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use floors::{Floor, tools};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let floor = Arc::new(Floor::new(tools()));
    if std::env::args().any(|arg| arg == "--stdio") {
        return streams(&floor);
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let floor = Arc::clone(&floor);
        let service = service_fn(move |request| answer(Arc::clone(&floor), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(
    floor: Arc<Floor>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::default());
    let body = request.into_body().collect().await.map(|body| body.to_bytes());
    let Some(answer) = body.ok().and_then(|body| floor.answer(&body).ok()) else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    };
    let kind = if answer.events { "text/event-stream" } else { "application/json" };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    *response.body_mut() = Full::from(answer.body);
    Ok(response)
}

fn streams(floor: &Floor) -> Result<(), Box<dyn Error>> {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let mut answer = floor.answer(line?.as_bytes())?.body;
        answer.push(b'\n');
        output.write_all(&answer)?;
        output.flush()?;
    }
    Ok(())
}
