//! A server with one tool, over HTTP: `cargo run --example hello`.

use mrtr::{BuildError, Server, Tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Greeting {
    /// The name of the person to greet
    name: String,
}

async fn hello(greeting: Greeting) -> String {
    format!("Hello, {}!", greeting.name)
}

pub fn server() -> Result<Server, BuildError> {
    let tool = Tool::new("hello", "Greets a person", hello);
    Server::builder("hello", "1.0.0").tool(tool).allow_anonymous().ephemeral_key().build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    Ok(mrtr::serve(server()?, "127.0.0.1:3000").await?)
}
