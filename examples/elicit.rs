//! Two forms in one round, an optional form, and all outcomes: `cargo run --example elicit`.

use mrtr::{BuildError, ClientFeature, Context, ElicitOutcome, Result, Server, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Trip {
    /// The city to travel to
    city: String,
}

/// A field of an enum is a choice. Documentation comments are what the user reads.
#[derive(Deserialize, JsonSchema)]
struct Journey {
    /// The means of transport
    by: Means,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Means {
    Train,
    Bicycle,
}

/// Limits become part of the form, and answers are validated.
#[derive(Deserialize, JsonSchema)]
struct Stay {
    /// The number of nights
    #[schemars(range(min = 1, max = 14))]
    nights: u8,
}

#[derive(Deserialize, JsonSchema)]
struct Diet {
    /// Anything you do not eat
    avoid: String,
}

#[derive(Deserialize, JsonSchema)]
struct Consent {
    /// Book now?
    yes: bool,
}

async fn travel(cx: Context, Trip { city }: Trip) -> Result<String> {
    // Both questions are sent in one round.
    let (journey, stay) = tokio::try_join!(
        cx.elicit::<Journey>("journey", format!("How do you travel to {city}?")),
        cx.elicit::<Stay>("stay", format!("How long do you stay in {city}?")),
    )?;
    // `None` if the user declines or dismisses the form.
    let diet: Option<Diet> = cx.elicit("diet", "A question for the kitchen.").optional().await?;
    let diet = diet.map_or_else(String::new, |diet| format!(", no {}", diet.avoid));
    let by = match journey.by {
        Means::Train => "train",
        Means::Bicycle => "bicycle",
    };
    let summary = format!("{} nights in {city}, by {by}{diet}", stay.nights);
    // A refusal as a value instead of an error.
    Ok(match cx.elicit("book", format!("{summary}.")).outcome().await? {
        ElicitOutcome::Accept(Consent { yes: true }) => format!("Booked: {summary}."),
        ElicitOutcome::Accept(_) | ElicitOutcome::Decline => "Not booked.".to_owned(),
        ElicitOutcome::Cancel => "Postponed.".to_owned(),
    })
}

pub fn server() -> Result<Server, BuildError> {
    // A client without forms is rejected before the handler runs.
    let tool = Tool::new("travel", "Books a journey", travel).requires([ClientFeature::Form]);
    Server::builder("travel", "1.0.0").tool(tool).allow_anonymous().ephemeral_key().build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    Ok(mrtr::serve(server()?, "127.0.0.1:3000").await?)
}
