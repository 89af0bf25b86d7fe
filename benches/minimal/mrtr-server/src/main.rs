//! A minimal server on mrtr: one tool that asks a question.

use mrtr::{Context, Result, Server, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Booking {
    people: u8,
}

#[derive(Deserialize, JsonSchema)]
struct Seat {
    place: String,
}

async fn book(cx: Context, booking: Booking) -> Result<String> {
    let seat: Seat = cx.elicit("seat", "Where would you like to sit?").await?;
    Ok(format!("{} people, {}", booking.people, seat.place))
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let tool = Tool::new("book", "Books a table", book);
    let server = Server::builder("booking", "1.0.0").ephemeral_key().tool(tool).allow_anonymous().build()?;
    if std::env::args().any(|arg| arg == "--stdio") {
        return Ok(mrtr::serve_stdio(server).await?);
    }
    Ok(mrtr::serve(server, "127.0.0.1:3000").await?)
}
