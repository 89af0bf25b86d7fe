//! Runs replicas as processes behind a load balancer, and kills, drains, rotates and upgrades them
//! while clients call. Checks the guarantees afterwards. `cargo xtask chaos` runs it. [`tasks`] does
//! the same with calls that are tasks, and with the PostgreSQL server that keeps them.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the output of a program")]
#![expect(clippy::indexing_slicing, reason = "an index into JSON returns null if it is missing")]

mod balancer;
mod clients;
mod fleet;
mod gateway;
mod invariants;
mod ledger;
mod load;
mod malformed;
mod replica;
mod scenario;
mod service;
mod tasks;
mod wire;
mod workload;

use std::error::Error;
use std::process::ExitCode;

use peak_alloc::PeakAlloc;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

/// Counts the allocated bytes.
#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

type BoxError = Box<dyn Error + Send + Sync>;
type Result<T = ()> = std::result::Result<T, BoxError>;

const USAGE: &str = "usage: chaos run --conf FILE [--balancer nginx|haproxy] [--seconds N] [--seed S] [--people N] \
                     [--gateway] [--retire-early] [--ignore-drain] --dir DIR\n       chaos tasks [--seconds N] [--seed S] [--callers N] --dir DIR\n       chaos load [--seconds N] [--connections N] --dir DIR";

#[tokio::main]
async fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let done = match args.next().as_deref() {
        Some("run") => scenario::run(args).await,
        Some("tasks") => tasks::run(args).await,
        Some("task-replica") => tasks::serve(args).await.map(|()| true),
        Some("load") => load::run(args).await,
        Some("replica") => replica::run(args).await.map(|()| true),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: {error}");
            ExitCode::from(2)
        }
    }
}

/// Parses the value that follows an option.
fn value<T: std::str::FromStr>(option: &str, args: &mut impl Iterator<Item = String>) -> Result<T> {
    let value = args.next().ok_or_else(|| format!("{option} needs a value"))?;
    value.parse().map_err(|_| format!("invalid value {value:?} of {option}").into())
}

/// Sends a signal to a child process.
fn signal(child: &Child, signal: Signal) -> Result {
    let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    Ok(kill_process(pid.ok_or("a process ended unexpectedly: see its log")?, signal)?)
}

/// Returns the median of a quarter of the values; the first quarter is 0.
fn quarter(of: &[u64], which: usize) -> Option<u64> {
    let length = of.len() / 4;
    let mut some: Vec<_> = of.iter().skip(which * length).take(length).copied().collect();
    some.sort_unstable();
    some.get(some.len() / 2).copied()
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
