//! A collector of log lines.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level};
use tracing_subscriber::fmt::format::FmtSpan;

/// Collects the log of this thread.
#[derive(Clone, Default)]
pub struct LogLines(Arc<Mutex<Vec<u8>>>);

impl LogLines {
    /// Collects from level INFO on, until the guard is dropped.
    pub fn collect() -> (Self, (DefaultGuard, Dispatch)) {
        Self::collect_from(Level::INFO)
    }

    /// Collects from this level on, with a line for the end of each span.
    pub fn collect_from(level: Level) -> (Self, (DefaultGuard, Dispatch)) {
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_span_events(FmtSpan::CLOSE)
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .finish();
        // With a single subscriber, `tracing` caches for all threads whether the first thread
        // wanted a line. A second subscriber disables that cache.
        let second = Dispatch::new(tracing_subscriber::registry());
        (lines, (tracing::subscriber::set_default(subscriber), second))
    }

    /// Returns the lines so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
