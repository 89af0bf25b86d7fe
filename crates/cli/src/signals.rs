//! Signals that end the program.

use std::future::pending;

use crate::options::Command;
use crate::output;
use crate::terminal_mode::TerminalMode;

/// Waits for a signal that ends the command, and returns 128 plus its number, as shells do.
///
/// Menus hide the cursor and change the mode of the terminal, so both are restored. The caller then
/// drops the command, which removes the file of a call that was not paused. Commands other than
/// `call` and `dev` handle signals themselves, or are ended by them.
pub(crate) async fn received(command: &Command, mode: &TerminalMode) -> u8 {
    let number = match command {
        Command::Call(_) => signal(true).await,
        // `dev` blocks while cargo builds. Ctrl-C ends cargo, too, so `dev` gets to handle it.
        // Other signals do not, and keep their default action.
        Command::Dev(_) => signal(false).await,
        _ => pending().await,
    };
    output::show_cursor();
    mode.restore();
    128 + number
}

/// Waits for a signal, and returns its number.
#[cfg(unix)]
async fn signal(all: bool) -> u8 {
    use tokio::signal::unix::{SignalKind, signal};

    let received = async |kind| match signal(kind) {
        Ok(mut signal) => drop(signal.recv().await),
        // Without a handler, the signal ends the program at once.
        Err(_) => pending().await,
    };
    tokio::select! {
        () = received(SignalKind::interrupt()) => 2,
        () = received(SignalKind::hangup()), if all => 1,
        () = received(SignalKind::terminate()), if all => 15,
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
