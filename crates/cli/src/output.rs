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
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    // What JSON lets stand, and a terminal may not.
    let harmless = mrtr::terminal::sanitize(&text);
    let pairs = text.chars().zip(harmless.chars());
    let escaped = |(c, shown): (char, char)| {
        if c == shown { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) }
    };
    line(&pairs.map(escaped).collect::<String>());
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
