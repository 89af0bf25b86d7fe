//! The server: one tool, written as if it ran once from top to bottom.

use std::error::Error;
use std::io::Write as _;

use mrtr::http::ServeOptions;
use mrtr::{ClientFeature, Context, KeyRing, Result, Secret, Server, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;

#[derive(Deserialize, JsonSchema)]
struct Booking {
    /// The number of guests
    people: u8,
    /// The day of the visit
    day: String,
}

#[derive(Deserialize, JsonSchema)]
struct Seat {
    /// Inside or outside?
    place: Place,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Place {
    Inside,
    Outside,
}

#[derive(Deserialize, JsonSchema)]
struct Diet {
    /// Leave empty if you eat everything
    avoid: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Consent {
    /// Pay the deposit now?
    pay: bool,
}

#[derive(Serialize, Deserialize)]
struct Table {
    number: u8,
    deposit: u32,
}

async fn book(cx: Context, Booking { people, day }: Booking) -> Result<String> {
    // A side effect. It runs in the first round, and its result travels on in the sealed state.
    let table: Table = cx.step("hold", async |s| hold(people, s.idempotency_key())).await?;

    // Two questions, one round.
    let (seat, diet) = tokio::try_join!(
        cx.elicit::<Seat>("seat", "Where would you like to sit?"),
        cx.elicit::<Diet>("diet", "Is there anything you do not eat?"),
    )?;

    // A second round. Another replica than the one that held the table can serve it.
    let deposit = format!("Table {} needs a deposit of {} €.", table.number, table.deposit);
    let consent: Consent = cx.elicit("deposit", deposit).await?;
    if !consent.pay {
        return Ok(format!("Not booked: the hold on table {} expires.", table.number));
    }
    let receipt: String = cx.step("pay", async |s| pay(&table, s.idempotency_key())).await?;

    let place = format!("{:?}", seat.place).to_lowercase();
    let diet = diet.avoid.map_or_else(String::new, |avoid| format!(", no {avoid}"));
    Ok(format!(
        "Booked table {} {place} for {people} on {day}{diet}. Receipt {receipt}.",
        table.number
    ))
}

/// Stands for a call to the restaurant.
fn hold(people: u8, key: &str) -> Result<Table> {
    record("hold", key)?;
    Ok(Table { number: 4 + people, deposit: 10 * u32::from(people) })
}

/// Stands for a call to the bank.
fn pay(table: &Table, key: &str) -> Result<String> {
    record("pay", key)?;
    Ok(format!("{}-{key:.6}", table.number))
}

/// Records a side effect in a file outside the replicas, so that the quickstart can count them.
fn record(step: &str, key: &str) -> Result<()> {
    if let Ok(path) = std::env::var("BOOKING_LEDGER") {
        let mut ledger = std::fs::OpenOptions::new().append(true).open(path)?;
        writeln!(ledger, "{step} {key}")?;
    }
    Ok(())
}

/// The server, with the key ring of all replicas.
fn server() -> Result<Server, Box<dyn Error>> {
    let secret = std::env::var("BOOKING_SECRET").map_err(|_| "BOOKING_SECRET is not set")?;
    let ring = KeyRing::builder("https://booking.example/mcp")
        .active(Secret::from_base64url(&secret)?)
        .build()?;
    let tool = Tool::new("book", "Books a table", book).requires([ClientFeature::Form]);
    let server = Server::builder("booking", "1.0.0").tool(tool).key_ring(ring);
    Ok(server.allow_anonymous().build()?)
}

/// Serves the tool over standard input and output.
pub async fn serve_stdio() -> Result<(), Box<dyn Error>> {
    Ok(mrtr::serve_stdio(server()?).await?)
}

/// Serves the tool over HTTP until standard input ends: when the parent process does.
pub async fn serve() -> Result<(), Box<dyn Error>> {
    let endpoint = mrtr::endpoint(server()?)?;
    let port = std::env::var("PORT").map_or(Ok(0), |port| port.parse())?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening {}", listener.local_addr()?.port());
    let end = async {
        let _ = tokio::io::stdin().read(&mut [0]).await;
    };
    Ok(mrtr::http::serve(listener, endpoint, ServeOptions::default(), end).await?)
}
