//! Simulates calls: `simulate [--flows N] [--seed S] [--era REVISION] [--carrier CARRIER] [--wire DIALECT]`. See
//! `mrtr_testkit::simulate`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the output of a program")]

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mrtr_dialects::Dialect;
use mrtr_testkit::simulate::{
    Carrier, Failure, Report, simulate, simulate_legacy, simulate_tasks, simulate_wire,
};

/// Simulates a number of calls from a seed on, and counts them.
type Simulation = fn(u64, u64, &AtomicU64) -> Result<Report, Box<Failure>>;

fn in_store(seed: u64, calls: u64, done: &AtomicU64) -> Result<Report, Box<Failure>> {
    simulate_tasks(Carrier::Store, seed, calls, done)
}

fn handed_over(seed: u64, calls: u64, done: &AtomicU64) -> Result<Report, Box<Failure>> {
    simulate_tasks(Carrier::HandOver, seed, calls, done)
}

const CURRENT: (&str, Simulation) = ("", simulate);
const LEGACY: (&str, Simulation) = (" --era 2025-11-25", simulate_legacy);
const STORE: (&str, Simulation) = (" --carrier store", in_store);
const HAND_OVER: (&str, Simulation) = (" --carrier handover", handed_over);

/// The simulations of the dialects, in the order of [`Dialect::ALL`].
const WIRES: [(&str, Simulation); 4] = [
    (" --wire incomplete", |seed, calls, done| {
        simulate_wire(Dialect::Incomplete, seed, calls, done)
    }),
    (" --wire dependent", |seed, calls, done| simulate_wire(Dialect::Dependent, seed, calls, done)),
    (" --wire multi-turn-sse", |seed, calls, done| {
        simulate_wire(Dialect::MultiTurnSse, seed, calls, done)
    }),
    (" --wire tasks-2322", |seed, calls, done| {
        simulate_wire(Dialect::Tasks2322, seed, calls, done)
    }),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const USAGE: &str = "usage: simulate [--flows N] [--seed S] [--era 2026-07-28|2025-11-25] \
                         [--carrier token|store|handover|all] [--wire DIALECT|all]";
    let (mut calls, mut seed, mut simulations) = (100_000, 0, vec![CURRENT]);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or(USAGE)?;
        match (arg.as_str(), value.parse::<u64>(), value.as_str()) {
            ("--flows", Ok(value), _) => calls = value,
            ("--seed", Ok(value), _) => seed = value,
            ("--era", _, "2026-07-28") | ("--carrier", _, "token") => simulations = vec![CURRENT],
            // Calls of 2025-06-18 are among them.
            ("--era", _, "2025-11-25") => simulations = vec![LEGACY],
            ("--carrier", _, "store") => simulations = vec![STORE],
            ("--carrier", _, "handover") => simulations = vec![HAND_OVER],
            ("--carrier", _, "all") => simulations = vec![CURRENT, STORE, HAND_OVER],
            ("--wire", _, "all") => simulations = WIRES.to_vec(),
            ("--wire", _, name) => {
                let name = format!(" --wire {name}");
                simulations.clear();
                simulations.extend(WIRES.iter().filter(|(options, _)| *options == name));
                if simulations.is_empty() {
                    return Err(USAGE.into());
                }
            }
            _ => return Err(USAGE.into()),
        }
    }
    simulations.into_iter().try_for_each(|(options, simulate)| run(options, simulate, seed, calls))
}

/// Runs a simulation on all processors, and prints its counts. `options` reproduce a failure.
fn run(
    options: &str,
    simulate: Simulation,
    seed: u64,
    calls: u64,
) -> Result<(), Box<dyn std::error::Error>> {
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
            let seed = failure.seed;
            format!("{failure}\nreproduce: cargo xtask simulate --flows 1 --seed {seed}{options}")
        })?;
        sum.add(&report);
    }
    let seconds = begun.elapsed().as_secs_f64();
    print_report(options, &sum, seconds);
    Ok(())
}

fn print_report(options: &str, sum: &Report, seconds: f64) {
    if options == LEGACY.0 {
        println!(
            "\r{} calls of legacy clients kept the guarantees ({} had nothing to resume from at another replica): {} \
             requests; {} faults; {} questions; {} runs of steps; {seconds:.1} s",
            sum.calls, sum.lost, sum.requests, sum.faults, sum.questions, sum.runs,
        );
        return;
    }
    if options != CURRENT.0 {
        println!(
            "\r{} calls kept the guarantees{options}: {} tasks after {} rounds; {} requests; {} faults; {} questions; \
             {} runs of steps; {seconds:.1} s",
            sum.calls, sum.tasks, sum.rounds, sum.requests, sum.faults, sum.questions, sum.runs,
        );
        return;
    }
    println!(
        "\r{} calls kept the guarantees ({} with an upgrade, which ended {}): {} requests, {} of them with a fault; {} \
         questions in {} rounds (at most {} in a call); {} logins for scopes ({} refused); {} runs of steps; \
         {seconds:.1} s",
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
    );
}
