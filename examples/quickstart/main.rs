//! One call across three replicas that share a key ring and nothing else. One of them is killed half-way.
//!
//! `cargo run --example quickstart` asks at the terminal; with `-- --auto`, or without a terminal, the answers are scripted. With
//! `-- --old-client`, the client is one of revision 2025-11-25, and the answers are scripted, too. The
//! program starts the replicas as processes, a load balancer, and a client that books a table. Before the last round, it kills the
//! replica that served the round before. The exit code is 0 only if every check at the end holds.

mod booking;
mod fleet;
mod old_client;

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use mrtr::schema::elicitation::ElicitParams;
use mrtr::{ElicitResult, terminal};
use serde_json::json;

use crate::fleet::{Fleet, NAMES};

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arg = std::env::args().nth(1);
    match arg.as_deref() {
        // The replicas. `cargo xtask interop` also starts one, for the client of another SDK.
        Some("--replica") => booking::serve().await?,
        Some("--stdio") => booking::serve_stdio().await?,
        Some("--auto") => return run(true).await,
        Some("--old-client") => return old_client::run().await,
        None => return run(!terminal::is_available()).await,
        Some(other) => {
            return Err(format!("unknown argument {other:?}; try --auto or --old-client").into());
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn run(auto: bool) -> Result<ExitCode, Box<dyn Error>> {
    println!("\n  One call, three replicas that share a key ring and nothing else.\n");
    let fleet = Fleet::start("no sticky sessions").await?;
    let (asked, killed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None)));

    let (own, questions, victim) = (Arc::clone(&fleet), Arc::clone(&asked), Arc::clone(&killed));
    let client = mrtr::connect(&fleet.url)?
        .on_form(move |context, form| {
            lock(&questions).push((context.input_round, context.key.clone()));
            if context.key == "deposit" {
                // The replica that asked is gone before the answer arrives.
                let replica = own.kill_last();
                println!("  SIGKILL        replica {}", replica.map_or('?', |at| NAMES[at]));
                *lock(&victim) = replica;
            }
            async move {
                if !auto {
                    return terminal::elicit("booking", &context, ElicitParams::Form(form)).await;
                }
                let answer = match &*context.key {
                    "seat" => json!({ "place": "outside" }),
                    "diet" => json!({ "avoid": "peanuts" }),
                    _ => json!({ "pay": true }),
                };
                println!("  question       {} {answer}", form.message);
                Ok(ElicitResult::accept(answer)?)
            }
        })
        .build();

    let arguments = json!({ "people": 2, "day": "Friday" });
    println!("  call           book {arguments}");
    let result = client.call_tool("book", arguments).await?;
    println!("\n  {}\n", result.text());

    let (served, steps) = (fleet.served(), fleet.steps());
    let (asked, killed) = (lock(&asked), *lock(&killed));
    fleet.stop();
    let runs = |step: &str| steps.iter().filter(|ran| *ran == step).count();
    let rounds = |round| asked.iter().filter(|(asked, _)| *asked == round).count();
    let distinct = NAMES.iter().enumerate().filter(|(at, _)| served.contains(at)).count();
    let elsewhere = killed.is_some() && served.last() != killed.as_ref();
    let checks = [
        (
            (rounds(1), rounds(2), asked.len()) == (2, 1, 3),
            "two questions in round 1, one in round 2",
        ),
        (served.len() == 3 && distinct == 3, "three requests, served by three replicas"),
        (runs("hold") == 1, "the table was held once"),
        (runs("pay") <= 1, "the deposit was not paid twice"),
        (elsewhere, "a replica was killed, and another completed the call"),
    ];
    Ok(report(&checks))
}

/// Prints the checks. The exit code is 0 only if all hold.
fn report(checks: &[(bool, &str)]) -> ExitCode {
    for (holds, check) in checks {
        println!("  {} {check}", if *holds { "✓" } else { "✗" });
    }
    println!();
    if checks.iter().all(|(holds, _)| *holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
