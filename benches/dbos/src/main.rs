//! Workflows that run steps: `dbos-peer URL WORKFLOWS SECONDS` prints what `tasks steps` prints.

// The same recorder, so that both count in the same way.
#[path = "../../tasks/src/recorder.rs"]
#[allow(dead_code, reason = "parts of it are for other measurements")]
mod recorder;

use std::time::{Duration, Instant};

use dbos::{Config, DBOS};
use recorder::Recorder;

/// The length of a step's result.
const RESULT: usize = 100;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().ok_or("URL WORKFLOWS SECONDS");
    let (url, workflows, seconds) = (next()?, next()?.parse::<usize>()?, next()?.parse()?);
    // A process of the same version would also recover the workflows of earlier measurements.
    let app_version = Some(std::process::id().to_string());
    let config = Config { app_version, ..Config::new("bench", url) };
    let dbos = DBOS::new(config);
    let recorder = Recorder::default();
    let records = recorder.clone();
    let steps = dbos.register_workflow("steps", move |_: ()| steps(records.clone()))?;
    dbos.launch().await?;
    for _ in 0..workflows {
        let steps = steps.clone();
        tokio::spawn(async move {
            if let Err(error) = steps.run(()).await {
                eprintln!("a workflow failed: {error}");
            }
        });
    }
    println!("{}", recorder.measure(Duration::from_secs_f64(seconds)).await);
    // Their rows stay as those of a process that has died.
    std::process::exit(0);
}

async fn steps(recorder: Recorder) -> dbos::Result<()> {
    for n in 0_u64.. {
        let started = Instant::now();
        dbos::step(&format!("step-{n}"), || async { dbos::Result::Ok("x".repeat(RESULT)) }).await?;
        if !recorder.add(started) {
            std::future::pending::<()>().await;
        }
    }
    Ok(())
}
