//! `load --workload NAME [--connections N] [--seconds S] [--flows N] [--warm-up S] [--listeners N] [--stdio] [--terminate] -- COMMAND…`
//! starts a server and measures calls. The server prints `listening PORT`, or is served over its
//! standard streams. At the end, it is killed, or asked to terminate.
//!
//! Each connection sends a request, waits for the response, checks it, and sends the next. A call
//! of several rounds counts once. At the end, one line of JSON reports the number of calls, their
//! times, and the resources of the server's process.

mod http;
mod process;
mod stdio;
mod workload;

use std::cell::Cell;
use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::json;

use process::Server;
use workload::Workload;

pub type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

struct Options {
    workload: Workload,
    connections: usize,
    seconds: f64,
    /// Number of calls after which the measurement ends early.
    calls: u64,
    warm_up: f64,
    listeners: usize,
}

fn main() -> Result {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let command = args.iter().position(|arg| arg == "--").map(|at| args.split_off(at));
    let command = command.ok_or("no command after --")?;
    let value = |name: &str| args.iter().skip_while(|arg| **arg != name).nth(1);
    let number = |name: &str, otherwise: f64| -> Result<f64> {
        value(name).map_or(Ok(otherwise), |text| Ok(text.parse()?))
    };
    let options = Options {
        workload: Workload::new(value("--workload").ok_or("missing option --workload")?)?,
        connections: number("--connections", 32.0)? as usize,
        seconds: number("--seconds", 3.0)?,
        calls: number("--flows", u64::MAX as f64)? as u64,
        warm_up: number("--warm-up", 0.5)?,
        listeners: number("--listeners", 0.0)? as usize,
    };
    let terminate = args.iter().any(|arg| arg == "--terminate");
    let server = Server::start(&command[1..], terminate)?;
    let measured = if args.iter().any(|arg| arg == "--stdio") {
        stdio::run(&options, server)?
    } else {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, run(options, server))?
    };
    if measured.taken.is_empty() {
        return Err("no call began and ended during the measurement".into());
    }
    println!("{}", measured.report());
    Ok(())
}

/// The measurement after the warm-up.
pub struct Measured {
    /// Times of calls, in nanoseconds.
    taken: Vec<u64>,
    seconds: f64,
    /// Processor time of the server's process, in seconds.
    cpu: f64,
    /// Time from the start of the process to its first response, in seconds.
    first: f64,
    /// Resident memory in bytes: after the first response, after the warm-up, at the end, and the
    /// maximum.
    idle: u64,
    warm: u64,
    rss: u64,
    peak: u64,
}

impl Measured {
    fn report(mut self) -> serde_json::Value {
        self.taken.sort_unstable();
        let calls = self.taken.len();
        let at = |share: f64| {
            let last = calls.saturating_sub(1);
            self.taken
                .get((calls as f64 * share) as usize)
                .or(self.taken.get(last))
                .copied()
                .unwrap_or(0)
        };
        let micros = |nanos: u64| nanos as f64 / 1e3;
        json!({
            "flows": calls,
            "per_second": calls as f64 / self.seconds,
            "p50_us": micros(at(0.5)),
            "p99_us": micros(at(0.99)),
            "cpu_us": self.cpu * 1e6 / calls.max(1) as f64,
            "first_ms": self.first * 1e3,
            "idle": self.idle,
            "warm": self.warm,
            "rss": self.rss,
            "peak": self.peak,
        })
    }
}

async fn run(options: Options, mut server: Server) -> Result<Measured> {
    let mut line = String::new();
    BufReader::new(server.output()?).read_line(&mut line)?;
    let port = line.trim().strip_prefix("listening ").and_then(|port| port.parse().ok());
    let unexpected = || format!("the server printed {line:?}, expected `listening PORT`");
    let port = port.ok_or_else(unexpected)?;
    let mut first = http::Connection::open(port).await?;
    first.call(&options.workload, &mut 0).await?;
    let (first, idle) = (server.started.elapsed().as_secs_f64(), server.memory()?.0);

    let mut listening = Vec::new();
    for _ in 0..options.listeners {
        listening.push(http::Connection::listen(port).await?);
    }
    // All connections are opened before the first call, because opening one beside a thousand busy
    // ones is slow.
    let mut connections = Vec::new();
    for _ in 0..options.connections {
        connections.push(http::Connection::open(port).await?);
    }
    let workload = Rc::new(options.workload);
    let done = Rc::new(Cell::new(0));
    // End of the measurement. Calls count once it is set.
    let end: Rc<Cell<Option<Instant>>> = Rc::default();
    let mut running = Vec::new();
    for (n, mut connection) in connections.into_iter().enumerate() {
        let (workload, done, end) = (Rc::clone(&workload), Rc::clone(&done), Rc::clone(&end));
        running.push(tokio::task::spawn_local(async move {
            // Ids are unique across connections, and have the same length.
            let mut id = 1_000_000_000 * (n as u64 + 1);
            let mut taken = Vec::with_capacity(1 << 16);
            loop {
                let (started, end) = (Instant::now(), end.get());
                if end.is_some_and(|end| started >= end) || done.get() >= options.calls {
                    return Ok::<_, String>(taken);
                }
                let outcome = connection.call(&workload, &mut id).await;
                outcome.map_err(|error| format!("request {id}: {error}"))?;
                if end.is_some() {
                    done.set(done.get() + 1);
                    taken.push(started.elapsed().as_nanos() as u64);
                }
            }
        }));
    }
    // Without a warm-up, every call counts.
    if options.warm_up > 0.0 {
        tokio::time::sleep(Duration::from_secs_f64(options.warm_up)).await;
    }
    let (begin, cpu, warm) = (Instant::now(), server.cpu()?, server.memory()?.0);
    end.set(Some(begin + Duration::from_secs_f64(options.seconds)));
    let mut taken = Vec::new();
    for connection in running {
        taken.extend(connection.await??);
    }
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), server.cpu()? - cpu);
    let (rss, peak) = server.memory()?;
    drop(listening);
    Ok(Measured { taken, seconds, cpu, first, idle, warm, rss, peak })
}
