//! Signals that end the program.

use std::future::pending;
use std::sync::Arc;

use crate::options::Command;
use crate::output;
use crate::terminal_mode::TerminalMode;

/// Waits for a signal that ends the command, and returns 128 plus its number, as shells do.
///
/// Menus hide the cursor and change the mode of the terminal, so both are restored. The caller then
/// drops the command, which removes the file of a call that was not paused. Commands other than
/// `call` and `dev` handle signals themselves, or are ended by them.
pub(crate) async fn received(command: &Command, mode: &Arc<TerminalMode>) -> u8 {
    let number = match command {
        Command::Call(_) => tokio::select! {
            number = interrupt() => number,
            number = termination() => number,
        },
        Command::Dev(_) => {
            // `dev` blocks its thread while cargo builds. Ctrl-C ends cargo, too, so `dev` gets to
            // handle it. Other signals do not, and end the program from another thread.
            let mode = Arc::clone(mode);
            tokio::spawn(async move {
                let code = end(termination().await, &mode);
                std::process::exit(code.into());
            });
            interrupt().await
        }
        _ => pending().await,
    };
    end(number, mode)
}

/// Restores the terminal, and returns the exit code.
fn end(number: u8, mode: &TerminalMode) -> u8 {
    output::show_cursor();
    mode.restore();
    128 + number
}

/// Waits for Ctrl-C, and returns the number that it has on Unix.
async fn interrupt() -> u8 {
    // Without a handler, it ends the program at once.
    if tokio::signal::ctrl_c().await.is_err() {
        pending::<()>().await;
    }
    2
}

/// Waits for another signal that ends the program, and returns its number.
#[cfg(unix)]
async fn termination() -> u8 {
    use tokio::signal::unix::{SignalKind, signal};

    let received = async |kind| match signal(kind) {
        Ok(mut signal) => drop(signal.recv().await),
        Err(_) => pending().await,
    };
    tokio::select! {
        () = received(SignalKind::hangup()) => 1,
        () = received(SignalKind::terminate()) => 15,
    }
}

#[cfg(not(unix))]
async fn termination() -> u8 {
    pending().await
}
