//! Output on the standard streams.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use serde::Serialize;

/// The first error of standard output.
static ERROR: OnceLock<io::Error> = OnceLock::new();

/// Returns the first error of standard output, if a result could not be printed.
pub(crate) fn error() -> Option<&'static io::Error> {
    check(io::stdout().flush());
    ERROR.get()
}

fn check(printed: io::Result<()>) {
    match printed {
        // A reader that closed the stream wants no more output.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = ERROR.set(error);
        }
        _ => {}
    }
}

/// Prints a line of the result to standard output. See [`error`].
pub(crate) fn line(text: &str) {
    check(writeln!(io::stdout(), "{text}"));
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

/// Shows the cursor of the terminal, which menus hide.
pub(crate) fn show_cursor() {
    if io::stderr().is_terminal() {
        prompt("\x1b[?25h");
    }
}

/// Returns a line break if the output is a terminal, where the line may have a prompt, and what the
/// user has typed.
pub(crate) fn line_break() -> &'static str {
    if io::stderr().is_terminal() { "\n" } else { "" }
}

/// Prints a value as JSON, with the control characters of terminals escaped. See [`error`].
pub(crate) fn json(value: &impl Serialize) {
    check(try_json(value));
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
