//! The server: one tool, written as if it ran once from top to bottom.

use std::error::Error;
use std::fmt;

use mrtr::http::{Endpoint, ServeOptions};
use mrtr::{ClientFeature, Context, KeyRing, Result, Secret, Server, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

/// Who is to come, and when.
#[derive(Deserialize, JsonSchema)]
struct Booking {
    /// How many people
    people: u8,
    /// For which evening
    day: String,
}

#[derive(Deserialize, JsonSchema)]
struct Seat {
    /// Inside or outside?
    place: Place,
}

#[derive(Deserialize, JsonSchema)]
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

async fn book(cx: Context, booking: Booking) -> Result<String> {
    // A side effect. It runs in the first round, and its result travels on in the sealed state.
    let table: Table = cx.step("hold", async |s| hold(&booking, s.idempotency_key()).await).await?;

    // Two questions, one round.
    let (seat, diet) = tokio::try_join!(
        cx.elicit::<Seat>("seat", "Where would you like to sit?"),
        cx.elicit::<Diet>("diet", "Is there anything you do not eat?"),
    )?;

    // A second round. The replica that serves it need not be the one that held the table.
    let deposit = format!("Table {} needs a deposit of {} €.", table.number, table.deposit);
    let consent: Consent = cx.elicit("deposit", deposit).await?;
    if !consent.pay {
        return Ok(format!("Not booked: table {} goes back when the hold expires.", table.number));
    }
    let receipt: String = cx.step("pay", async |s| pay(&table, s.idempotency_key()).await).await?;

    let diet = diet.avoid.map_or_else(String::new, |avoid| format!(", no {avoid}"));
    Ok(format!(
        "Booked table {} {} for {} on {}{diet}. Receipt {receipt}.",
        table.number, seat.place, booking.people, booking.day
    ))
}

/// Calls the restaurant.
async fn hold(booking: &Booking, key: &str) -> Result<Table> {
    call_outside("hold", key).await?;
    Ok(Table { number: 4 + booking.people, deposit: 10 * u32::from(booking.people) })
}

/// Calls the bank.
async fn pay(table: &Table, key: &str) -> Result<String> {
    call_outside("pay", key).await?;
    Ok(format!("{}-{}", table.number, key.get(..6).unwrap_or(key)))
}

/// The world outside counts how often it is called. Here it is the process that started the fleet.
async fn call_outside(what: &str, key: &str) -> Result<()> {
    if let Ok(outside) = std::env::var("BOOKING_OUTSIDE") {
        let request = reqwest::Client::new().post(format!("{outside}/{what}"));
        request.header("Idempotency-Key", key).send().await?.error_for_status()?;
    }
    Ok(())
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inside => "inside",
            Self::Outside => "outside",
        })
    }
}

/// The server, with the key ring that the whole fleet has.
fn server() -> std::result::Result<Server, Box<dyn Error>> {
    let secret = std::env::var("BOOKING_SECRET").map_err(|_| "BOOKING_SECRET is not set")?;
    let ring = KeyRing::builder("https://booking.example/mcp")
        .active(Secret::from_base64url(&secret)?)
        .build()?;
    let server = Server::builder("booking", "1.0.0")
        .tool(Tool::new("book", "Books a table", book).requires([ClientFeature::Form]))
        .key_ring(ring)
        .allow_anonymous()
        .build()?;
    Ok(server)
}

/// Serves the tool over standard input and output.
pub async fn serve_stdio() -> std::result::Result<(), Box<dyn Error>> {
    Ok(mrtr::serve_stdio(server()?).await?)
}

/// Serves the tool on a free port, until our parent goes.
pub async fn serve() -> std::result::Result<(), Box<dyn Error>> {
    let server = server()?;
    let port = std::env::var("PORT").ok().map_or(Ok(0), |port| port.parse())?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening {}", listener.local_addr()?.port());
    let parent_is_gone = async {
        let _ = tokio::io::stdin().read(&mut [0]).await;
    };
    mrtr::http::serve(listener, Endpoint::new(server), ServeOptions::default(), parent_is_gone)
        .await?;
    Ok(())
}
