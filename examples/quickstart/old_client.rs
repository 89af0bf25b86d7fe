//! The same call by a client of revision 2025-11-25, which holds a session and a stream.

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use mrtr::http::HttpClient;
use mrtr::legacy::{AnyRevisionClient, RevisionMode};
use mrtr::{Client, ElicitResult};
use serde_json::json;

use crate::fleet::{Fleet, NAMES};
use crate::{lock, report};

pub async fn run() -> Result<ExitCode, Box<dyn Error>> {
    println!(
        "\n  One call of a 2025-11-25 client, three replicas that share a key ring and nothing else.\n"
    );
    let fleet = Fleet::start("sticky by session id").await?;
    let killed = Arc::new(Mutex::new(None));
    let (own, victim) = (Arc::clone(&fleet), Arc::clone(&killed));
    let http = HttpClient::builder(&fleet.url).build()?;
    let transport = AnyRevisionClient::new(http, RevisionMode::Legacy);
    let client = Client::builder(transport)
        .on_form(move |_, form| {
            if form.message.contains("deposit") && lock(&victim).is_none() {
                // The replica that asked is gone before the answer arrives.
                let replica = own.kill_last();
                println!("  SIGKILL        replica {}", replica.map_or('?', |at| NAMES[at]));
                *lock(&victim) = replica;
            }
            let answer = match form.requested_schema.fields.first().map(|field| &*field.name) {
                Some("place") => json!({ "place": "outside" }),
                Some("avoid") => json!({ "avoid": "peanuts" }),
                _ => json!({ "pay": true }),
            };
            println!("  question       {} {answer}", form.message);
            std::future::ready(ElicitResult::accept(answer).map_err(Into::into))
        })
        .build();

    let arguments = json!({ "people": 2, "day": "Friday" });
    println!("  call           book {arguments}");
    let result = client.call_tool("book", arguments).await?;
    println!("\n  {}\n", result.text());

    let (served, steps, killed) = (fleet.served(), fleet.steps(), *lock(&killed));
    fleet.stop();
    let runs = |step: &str| steps.iter().filter(|ran| *ran == step).count();
    Ok(report(&[
        (client.protocol_version() == Some("2025-11-25"), "the client spoke revision 2025-11-25"),
        (
            killed.is_some() && served.last() != killed.as_ref(),
            "a replica was killed at a question, and another continued the call from the event id",
        ),
        (runs("hold") == 1, "the table was held once"),
        (runs("pay") == 1, "the deposit was paid once"),
    ]))
}
