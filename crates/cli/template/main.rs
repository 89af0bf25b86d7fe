//! A Model Context Protocol server.
//!
//! It serves the program that starts it, over standard input and output. With an address as its
//! argument, it serves HTTP there.

use mrtr::{Context, Result, Server, ServerBuilder, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Booking {
    /// Number of guests
    people: u8,
}

#[derive(Deserialize, JsonSchema)]
struct Seat {
    /// Inside or outside
    place: String,
}

async fn book(cx: Context, Booking { people }: Booking) -> Result<String> {
    // A side effect: its result is recorded, and it does not run again after the answer.
    let table = cx.step("hold", async |step| hold(people, step.idempotency_key()).await).await?;
    // A question: the call is suspended, and the function runs again when the answer is there.
    let seat: Seat = cx.elicit("seat", "Where would you like to sit?").await?;
    Ok(format!("Table {table} for {people}, {}.", seat.place))
}

/// Replace this with a request to your own system.
async fn hold(people: u8, _idempotency_key: &str) -> Result<u8> {
    Ok(people / 2 + 1)
}

fn server() -> ServerBuilder {
    Server::builder(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")).tool(Tool::new(
        "book",
        "Books a table",
        book,
    ))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Standard output belongs to the protocol.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    // Everyone who can connect may call, and open calls end with this process. Before you deploy
    // the server, read https://docs.rs/mrtr/latest/mrtr/guide/deploying/
    let server = server().allow_anonymous().ephemeral_key().build()?;
    match std::env::args().nth(1) {
        None => mrtr::serve_stdio(server).await?,
        Some(address) => {
            eprintln!("serving http://{address}/mcp");
            mrtr::serve(server, address).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use mrtr::testing::{Fault, Replicas, TestCall};
    use mrtr::{KeyRing, SharedKeyRing};
    use serde_json::json;

    use super::*;

    /// Each round may reach another replica, and a response may be lost.
    #[tokio::test]
    async fn lost_response_changes_nothing() -> Result<(), Box<dyn std::error::Error>> {
        let ring = SharedKeyRing::new(KeyRing::ephemeral()?);
        let replica = || server().allow_anonymous().sealer(ring.clone()).build();
        let replicas = Replicas::new([replica()?, replica()?]);
        let transcript = TestCall::tool("book", json!({ "people": 4 }))
            .answer("seat", json!({ "place": "outside" }))
            .fault(2, Fault::ResponseLost)
            .run(&replicas)
            .await?;
        assert_eq!(transcript.text(), "Table 3 for 4, outside.");
        assert_eq!(transcript.step_runs("hold"), 1);
        Ok(())
    }
}
