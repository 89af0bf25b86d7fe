//! What is printed, and how.

use std::io::{IsTerminal, Write};

use serde::Serialize;

/// A line of the result.
pub(crate) fn line(text: &str) {
    // Whoever stopped reading does not want more.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A line for the person, beside the result.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

pub(crate) fn json(value: &impl Serialize) {
    line(&serde_json::to_string_pretty(value).unwrap_or_default());
}

/// What a server sent, without what would move the cursor, colour the screen, or turn the order of letters around.
pub(crate) fn plain(text: &str) -> String {
    let is_harmless = |c: char| match c {
        '\n' => true,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => false,
        other => !other.is_control(),
    };
    text.chars().map(|c| if is_harmless(c) { c } else { '\u{fffd}' }).collect()
}

/// As [`plain`], on one line.
pub(crate) fn flat(text: &str) -> String {
    plain(text).replace('\n', " ")
}

/// Bold, at a terminal.
pub(crate) fn bold(text: &str) -> String {
    painted("1", text)
}

/// Dim, at a terminal.
pub(crate) fn dim(text: &str) -> String {
    painted("2", text)
}

fn painted(code: &str, text: &str) -> String {
    let colours = std::io::stderr().is_terminal()
        && std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none();
    if colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_sends_does_not_drive_the_terminal() {
        assert_eq!(
            plain("a\u{1b}[2Jb\r\u{7}\u{202e}c\nd é 🦀"),
            "a\u{fffd}[2Jb\u{fffd}\u{fffd}\u{fffd}c\nd é 🦀"
        );
        assert_eq!(flat("a\nb"), "a b");
    }
}
