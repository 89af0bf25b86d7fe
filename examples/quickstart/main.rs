//! The main job, end to end: a tool that asks questions in the middle of a call, on replicas that
//! share nothing but a key ring.
//!
//! `cargo run --example quickstart` asks you; with `-- --auto`, or without a terminal, answers are
//! scripted. It starts three replicas of one server as processes of their own, a round robin in front
//! that knows nothing of the protocol, and a client that calls a booking tool. Before the last round it
//! kills the replica that served the round before. The exit code is 0 only if all of it went as it
//! should.

mod booking;
mod client;
mod fleet;
mod person;
mod show;

use std::error::Error;
use std::io::IsTerminal;
use std::process::ExitCode;

use crate::person::Person;
use crate::show::Show;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        // What the fleet starts, and what `cargo xtask interop` calls with clients of others.
        Some("--replica") => {
            booking::serve().await?;
            Ok(ExitCode::SUCCESS)
        }
        Some("--stdio") => {
            booking::serve_stdio().await?;
            Ok(ExitCode::SUCCESS)
        }
        Some("--auto") => run(false).await,
        None => run(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()).await,
        Some(other) => Err(format!("unknown argument {other:?}; there is only --auto").into()),
    }
}

async fn run(ask: bool) -> Result<ExitCode, Box<dyn Error>> {
    let show = Show::new();
    show.title("mrtr quickstart", "one call, three replicas that share nothing but a key ring");
    let fleet = fleet::Fleet::start(3).await?;
    fleet.introduce(&show);
    let person = if ask { Person::at_terminal() } else { Person::scripted() };
    let outcome = client::book(&fleet, person, &show).await;
    let verdict = match &outcome {
        Ok(text) => {
            show.result(text);
            fleet.judge()
        }
        Err(error) => {
            show.failure(&error.to_string());
            fleet.judge()
        }
    };
    let ok = show.verdict(&verdict) && outcome.is_ok();
    fleet.stop().await;
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
