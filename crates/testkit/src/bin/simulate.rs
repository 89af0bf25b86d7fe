//! Simulates calls: `simulate [--flows N] [--seed S]`. See `mrtr_testkit::simulate`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the output of a program")]

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mrtr_testkit::simulate::{Report, simulate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut calls, mut seed) = (100_000, 0);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().and_then(|value| value.parse::<u64>().ok());
        match (arg.as_str(), value) {
            ("--flows", Some(value)) => calls = value,
            ("--seed", Some(value)) => seed = value,
            _ => return Err("usage: simulate [--flows N] [--seed S]".into()),
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let (done, begun) = (AtomicU64::new(0), Instant::now());
    let reports = std::thread::scope(|scope| {
        let share = calls.div_ceil(threads);
        let workers: Vec<_> = (0..threads)
            .map(|n| {
                let calls = share.min(calls.saturating_sub(n * share));
                let done = &done;
                scope.spawn(move || simulate(seed + n * share, calls, done))
            })
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(200));
            if std::io::stderr().is_terminal() {
                eprint!("\r{} of {calls} calls", done.load(Ordering::Relaxed));
                std::io::stderr().flush()?;
            }
        }
        let reports: Vec<_> =
            workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        Ok::<_, std::io::Error>(reports)
    })?;
    let mut sum = Report::default();
    for report in reports {
        let report = report.map_err(|_| "a worker failed")?.map_err(|failure| {
            format!("{failure}\nreproduce: cargo xtask simulate --flows 1 --seed {}", failure.seed)
        })?;
        sum.calls += report.calls;
        sum.requests += report.requests;
        sum.rounds += report.rounds;
        sum.questions += report.questions;
        sum.runs += report.runs;
        sum.faults += report.faults;
        sum.upgraded += report.upgraded;
        sum.ended_by_upgrade += report.ended_by_upgrade;
        sum.most_rounds = sum.most_rounds.max(report.most_rounds);
    }
    println!(
        "\r{} calls kept the guarantees ({} with an upgrade, which ended {}): {} requests, {} of them with a fault; {} \
         questions in {} rounds (at most {} in a call); {} runs of steps; {:.1} s",
        sum.calls,
        sum.upgraded,
        sum.ended_by_upgrade,
        sum.requests,
        sum.faults,
        sum.questions,
        sum.rounds,
        sum.most_rounds,
        sum.runs,
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}
