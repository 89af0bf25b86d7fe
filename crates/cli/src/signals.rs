//! Signals that end the program.

use crate::output;

/// Waits for a signal that ends the program, and returns the exit code by the convention of shells.
///
/// From then on the caller can drop what it does, so that files are removed that were not finished.
pub(crate) async fn received() -> u8 {
    let number = signal().await;
    output::show_cursor();
    128 + number
}

/// Waits for a signal, and returns its number.
#[cfg(unix)]
async fn signal() -> u8 {
    use tokio::signal::unix::{SignalKind, signal};

    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        // Without handlers, signals end the program at once.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => 2,
        _ = terminate.recv() => 15,
    }
}

/// Waits for Ctrl-C, and returns the number that it has on Unix.
#[cfg(not(unix))]
async fn signal() -> u8 {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
    2
}
