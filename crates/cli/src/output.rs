//! Output on the standard streams.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// Prints a line of the result to standard output.
pub(crate) fn line(text: &str) {
    // A reader that closed the stream wants no more output.
    let _ = writeln!(io::stdout(), "{text}");
}

/// Prints a line for the user to standard error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Standard error for log lines, without the control characters of terminals: servers may have sent
/// parts of them.
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        io::stderr().write_all(mrtr::terminal::sanitize(&text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Prints the beginning of a line that the user completes to standard error.
pub(crate) fn prompt(text: &str) {
    let mut stderr = io::stderr();
    let _ = write!(stderr, "{text}");
    let _ = stderr.flush();
}

/// Returns a line break if the output is a terminal, where the line may have a prompt, and what the
/// user has typed.
pub(crate) fn line_break() -> &'static str {
    if io::stderr().is_terminal() { "\n" } else { "" }
}

/// Prints a value as JSON, with the control characters of terminals escaped.
pub(crate) fn json(value: &impl Serialize) {
    // A reader that closed the stream wants no more output.
    let _ = try_json(value);
}

/// Like [`json`], and returns the error of the stream.
pub(crate) fn try_json(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    // JSON allows characters, unescaped, that control a terminal.
    let sanitized = mrtr::terminal::sanitize(&text);
    let pairs = text.chars().zip(sanitized.chars());
    let escaped = |(c, shown): (char, char)| {
        if c == shown { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) }
    };
    let mut stdout = io::stdout();
    writeln!(stdout, "{}", pairs.map(escaped).collect::<String>())?;
    stdout.flush()
}

/// Makes text bold if the output is a terminal.
pub(crate) fn bold(text: &str) -> String {
    styled("1", text)
}

/// Makes text dim if the output is a terminal.
pub(crate) fn dim(text: &str) -> String {
    styled("2", text)
}

fn styled(code: &str, text: &str) -> String {
    let is_styled = io::stderr().is_terminal()
        && io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none();
    if is_styled { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}
