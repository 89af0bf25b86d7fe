//! A program as a user of the published crates writes it: a tool that asks a question, and a client that answers it. `cargo xtask
//! package` builds and runs it against the packaged files.

use mrtr::{Client, Context, ElicitResult, InProcess, Result, Server, Tool};
use serde_json::json;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Booking {
    people: u8,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Seat {
    /// Inside or outside?
    place: String,
}

async fn book(cx: Context, booking: Booking) -> Result<String> {
    let table = cx.step("hold", async |_| Ok(booking.people + 4)).await?;
    let seat: Seat = cx.elicit("seat", "Where would you like to sit?").await?;
    Ok(format!("Table {table}, {}.", seat.place))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let book = Tool::new("book", "Books a table", book);
    let server = Server::builder("booking", "1.0.0").ephemeral_key().tool(book).allow_anonymous().build()?;
    let client = Client::builder(InProcess::new(server))
        .on_form(async |_, _| Ok(ElicitResult::accept(json!({ "place": "outside" }))?))
        .build();
    let result = client.call_tool("book", json!({ "people": 2 })).await?;
    assert_eq!(result.text(), "Table 6, outside.");
    println!("{}", result.text());
    Ok(())
}
