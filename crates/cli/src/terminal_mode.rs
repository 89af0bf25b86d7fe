//! The mode of the terminal, which menus change.

/// The mode of the terminal when the program began. A signal may end the program at a menu, which
/// reads keys in raw mode.
pub(crate) struct TerminalMode {
    #[cfg(unix)]
    saved: Option<rustix::termios::Termios>,
}

impl TerminalMode {
    pub(crate) fn save() -> Self {
        Self {
            #[cfg(unix)]
            saved: rustix::termios::tcgetattr(std::io::stdin()).ok(),
        }
    }

    pub(crate) fn restore(&self) {
        #[cfg(unix)]
        if let Some(saved) = &self.saved {
            use rustix::process::getpgrp;
            use rustix::termios::{OptionalActions, tcgetpgrp, tcsetattr};

            // In the background, it has no menu, and would be stopped.
            if tcgetpgrp(std::io::stdin()) == Ok(getpgrp()) {
                // The terminal may be gone.
                let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, saved);
            }
        }
    }
}
