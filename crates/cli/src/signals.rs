//! Signals that end the program.

use std::future::pending;
use std::process::ExitCode;
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
        Command::Call(_) => end().await,
        Command::Dev(_) => {
            // `dev` blocks its thread while cargo builds. Ctrl-C ends cargo, too, so `dev` gets to
            // handle it. Other signals do not, and end the program from another thread.
            let mode = Arc::clone(mode);
            tokio::spawn(async move {
                let code = restored(termination().await, &mode);
                std::process::exit(code.into());
            });
            interrupt().await
        }
        _ => pending().await,
    };
    restored(number, mode)
}

/// Waits for a signal that ends the program, and returns its number.
pub(crate) async fn end() -> u8 {
    tokio::select! {
        number = interrupt() => number,
        number = termination() => number,
    }
}

/// Returns the exit code of a program that a signal has ended: 128 plus its number, as in shells.
pub(crate) fn exit_code(number: u8) -> ExitCode {
    ExitCode::from(128 + number)
}

/// Restores the terminal, and returns the exit code.
fn restored(number: u8, mode: &TerminalMode) -> u8 {
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
async fn termination() -> u8 {
    #[cfg(unix)]
    let terminate = unix(tokio::signal::unix::SignalKind::terminate());
    #[cfg(not(unix))]
    let terminate = pending::<()>();
    tokio::select! {
        number = hangup() => number,
        () = terminate => 15,
    }
}

/// Waits until the terminal has gone, and returns the number of the signal.
pub(crate) async fn hangup() -> u8 {
    #[cfg(unix)]
    unix(tokio::signal::unix::SignalKind::hangup()).await;
    #[cfg(not(unix))]
    pending::<()>().await;
    1
}

#[cfg(unix)]
async fn unix(kind: tokio::signal::unix::SignalKind) {
    match tokio::signal::unix::signal(kind) {
        Ok(mut signal) => drop(signal.recv().await),
        Err(_) => pending().await,
    }
}
