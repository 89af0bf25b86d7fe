//! The ledger of tasks: what their handlers did.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::ledger::Ledger;

/// A pause of a process that is longer than this counts as a disturbance.
const STALL: Duration = Duration::from_millis(250);

/// One line of the ledger.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Seconds since 1970. All processes are on one machine.
    pub(crate) at: f64,
    /// The port of the replica.
    pub(crate) port: u16,
    /// The run of a handler, unique among all processes.
    pub(crate) run: u64,
    pub(crate) call: String,
    pub(crate) event: Event,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Event {
    /// A handler began to run, or to replay.
    Began { caller: String },
    /// The code of a step began to run.
    Step { step: String, key: String, nonce: String },
    /// The handler got the result of a step.
    Passed { step: String, nonce: String },
    /// The process did not run for some time, since this time.
    Stalled { since: f64 },
}

/// Returns the time in seconds since 1970.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Writes the lines of one replica.
#[derive(Debug)]
pub(crate) struct Recorder {
    ledger: Ledger,
    port: u16,
    runs: AtomicU64,
}

impl Recorder {
    pub(crate) fn new(ledger: Ledger, port: u16) -> Arc<Self> {
        let first = u64::from(std::process::id()) << 32;
        Arc::new(Self { ledger, port, runs: AtomicU64::new(first) })
    }

    fn write(&self, run: u64, call: &str, event: Event) -> std::io::Result<()> {
        let call = call.to_owned();
        self.ledger.write(&Entry { at: now(), port: self.port, run, call, event })
    }

    /// Records the beginning of a handler's run.
    pub(crate) fn begin(self: &Arc<Self>, call: &str, caller: &str) -> std::io::Result<Run> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        self.write(run, call, Event::Began { caller: caller.to_owned() })?;
        Ok(Run { recorder: Arc::clone(self), id: run, call: call.to_owned() })
    }

    /// Records when this process does not get to run: it was frozen, or the machine is busy.
    pub(crate) fn watch_stalls(self: &Arc<Self>) -> Result {
        let recorder = Arc::clone(self);
        std::thread::Builder::new().name("stalls".to_owned()).spawn(move || {
            loop {
                let (before, since) = (Instant::now(), now());
                std::thread::sleep(Duration::from_millis(50));
                if before.elapsed() > STALL {
                    // A line that is missing excuses nothing.
                    let _ = recorder.write(0, "", Event::Stalled { since });
                }
            }
        })?;
        Ok(())
    }
}

/// A run of a handler.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    recorder: Arc<Recorder>,
    id: u64,
    call: String,
}

impl Run {
    pub(crate) fn step(&self, step: &str, key: &str, nonce: &str) -> std::io::Result<()> {
        let (step, key, nonce) = (step.to_owned(), key.to_owned(), nonce.to_owned());
        self.recorder.write(self.id, &self.call, Event::Step { step, key, nonce })
    }

    pub(crate) fn passed(&self, step: &str, nonce: &str) -> std::io::Result<()> {
        let (step, nonce) = (step.to_owned(), nonce.to_owned());
        self.recorder.write(self.id, &self.call, Event::Passed { step, nonce })
    }
}
