//! Signals that end the program.

use std::future::pending;

use crate::options::Command;
use crate::output;

/// Waits for a signal, after which the command can be dropped, and returns the exit code by the
/// convention of shells. The menus of a command hide the cursor, which is shown again, and a call
/// that was to be paused has a file, which is removed.
///
/// Other commands are ended by the signal itself, or handle it.
pub(crate) async fn received(command: &Command) -> u8 {
    let number = match command {
        Command::Call(_) => signal(true).await,
        // It blocks while it builds. Then Ctrl-C ends cargo, too, but no other signal does.
        Command::Dev(_) => signal(false).await,
        _ => pending().await,
    };
    output::show_cursor();
    128 + number
}

/// Waits for a signal, and returns its number.
#[cfg(unix)]
async fn signal(with_terminate: bool) -> u8 {
    use tokio::signal::unix::{SignalKind, signal};

    let received = async |kind| match signal(kind) {
        Ok(mut signal) => drop(signal.recv().await),
        // Without a handler, the signal ends the program at once.
        Err(_) => pending().await,
    };
    tokio::select! {
        () = received(SignalKind::interrupt()) => 2,
        () = received(SignalKind::terminate()), if with_terminate => 15,
    }
}

/// Waits for Ctrl-C, and returns the number that it has on Unix.
#[cfg(not(unix))]
async fn signal(_: bool) -> u8 {
    if tokio::signal::ctrl_c().await.is_err() {
        pending::<()>().await;
    }
    2
}
