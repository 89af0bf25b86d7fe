//! Simulates calls: `simulate [--flows N] [--seed S] [--era REVISION]`. See `mrtr_testkit::simulate`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the output of a program")]

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mrtr_testkit::simulate::{Report, simulate, simulate_legacy};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const USAGE: &str = "usage: simulate [--flows N] [--seed S] [--era 2026-07-28|2025-11-25]";
    let (mut calls, mut seed, mut is_legacy) = (100_000, 0, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or(USAGE)?;
        match (arg.as_str(), value.parse::<u64>(), value.as_str()) {
            ("--flows", Ok(value), _) => calls = value,
            ("--seed", Ok(value), _) => seed = value,
            ("--era", _, "2026-07-28") => is_legacy = false,
            // Calls of 2025-06-18 are among them.
            ("--era", _, "2025-11-25") => is_legacy = true,
            _ => return Err(USAGE.into()),
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
                let simulate = if is_legacy { simulate_legacy } else { simulate };
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
            let (seed, era) = (failure.seed, if is_legacy { " --era 2025-11-25" } else { "" });
            format!("{failure}\nreproduce: cargo xtask simulate --flows 1 --seed {seed}{era}")
        })?;
        sum.add(&report);
    }
    if is_legacy {
        println!(
            "\r{} calls of legacy clients kept the guarantees ({} had nothing to resume from at another replica): {} \
             requests; {} faults; {} questions; {} runs of steps; {:.1} s",
            sum.calls,
            sum.lost,
            sum.requests,
            sum.faults,
            sum.questions,
            sum.runs,
            begun.elapsed().as_secs_f64()
        );
        return Ok(());
    }
    println!(
        "\r{} calls kept the guarantees ({} with an upgrade, which ended {}): {} requests, {} of them with a fault; {} \
         questions in {} rounds (at most {} in a call); {} logins for scopes ({} refused); {} runs of steps; {:.1} s",
        sum.calls,
        sum.upgraded,
        sum.ended_by_upgrade,
        sum.requests,
        sum.faults,
        sum.questions,
        sum.rounds,
        sum.most_rounds,
        sum.logins,
        sum.refused,
        sum.runs,
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}
