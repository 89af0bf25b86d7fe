//! The times of operations.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Records the times of operations that end while it measures.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Inner>);

#[derive(Default)]
struct Inner {
    phase: AtomicU8,
    micros: Mutex<Vec<f64>>,
}

const MEASURING: u8 = 1;
const OVER: u8 = 2;

impl Recorder {
    /// Records an operation. Returns false if no other is to begin.
    pub fn add(&self, since: Instant) -> bool {
        let phase = self.0.phase.load(Ordering::Relaxed);
        if phase == MEASURING {
            let micros = since.elapsed().as_secs_f64() * 1e6;
            self.0.micros.lock().unwrap_or_else(PoisonError::into_inner).push(micros);
        }
        phase != OVER
    }

    /// Measures for a time, after a warm-up.
    pub async fn measure(&self, time: Duration) -> Value {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (cpu, started) = (cpu(), Instant::now());
        self.0.phase.store(MEASURING, Ordering::Relaxed);
        tokio::time::sleep(time).await;
        self.0.phase.store(OVER, Ordering::Relaxed);
        let taken = started.elapsed().as_secs_f64();
        let mut micros =
            std::mem::take(&mut *self.0.micros.lock().unwrap_or_else(PoisonError::into_inner));
        let count = micros.len() as f64;
        let mut measured = quantiles(&mut micros);
        measured["per_second"] = json!(count / taken);
        measured["cpu_us"] = json!((self::cpu() - cpu) * 1e6 / count);
        measured
    }
}

/// Returns the median, the 99th percentile and both ends.
pub fn quantiles(values: &mut [f64]) -> Value {
    values.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let at = (values.len() as f64 * part) as usize;
        values.get(at.min(values.len().saturating_sub(1))).copied()
    };
    json!({ "count": values.len(), "min": at(0.0), "p50": at(0.5), "p99": at(0.99), "max": at(1.0) })
}

/// Returns the CPU time of this process in seconds.
fn cpu() -> f64 {
    cpu_of("self").unwrap_or(f64::NAN)
}

/// Returns the CPU time of a process in seconds.
pub fn cpu_of(process: &str) -> Option<f64> {
    // The time on the processor in nanoseconds, by thread.
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let nanos = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    Some(nanos.sum::<f64>() / 1e9)
}
