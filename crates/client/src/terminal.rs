//! Answers to elicitations at the terminal: forms, and URLs to visit. (Feature `terminal`.)
//!
//! The server's name is always shown, and declining and cancelling are always offered. The answers
//! to a form with several fields can be changed before they are sent. Text from a server is
//! [sanitized](sanitize), so that it cannot move the cursor, colour the screen or reverse the order
//! of letters. A URL is shown in full, with its host. It is not opened: the user opens it.
//!
//! ```no_run
//! # fn example<T: mrtr_client::Transport>(transport: T) -> mrtr_client::Client<T> {
//! use mrtr_client::Client;
//!
//! Client::builder(transport).answer_at_terminal("booking.example").build()
//! # }
//! ```

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dialoguer::console::{Style, Term};
use dialoguer::{Input, MultiSelect, Select};
use mrtr_schema::elicitation::{ElicitParams, ElicitResult, FormParams, UrlParams};
use mrtr_schema::form::{ChoiceOption, Field, FieldKind, FormSchema};
use mrtr_schema::peer_text::is_harmless;
use mrtr_transport::{BoxError, Transport};
use serde_json::{Map, Value};

use crate::builder::ClientBuilder;
use crate::input_context::InputContext;

/// Serializes the elicitations of a round, which arrive concurrently, over the one terminal.
static TERMINAL: Mutex<()> = Mutex::new(());

/// Returns true if standard input and standard error are a terminal.
pub fn is_available() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Answers an elicitation at the terminal, on standard error, in the name of `server`.
///
/// Concurrent elicitations are shown one after the other. When the future is dropped, the
/// elicitation ends with the line that the user is typing.
///
/// # Errors
///
/// If there is no terminal, or reading from it fails.
///
/// ```no_run
/// # fn example<T: mrtr_client::Transport>(transport: T) -> mrtr_client::Client<T> {
/// use mrtr_client::{Client, terminal};
/// use mrtr_schema::elicitation::{ElicitParams, ElicitResult};
///
/// // Forms at the terminal, if there is one; URLs are always declined.
/// Client::builder(transport)
///     .on_form(async |context, form| {
///         if !terminal::is_available() {
///             return Ok(ElicitResult::decline());
///         }
///         terminal::elicit("booking.example", &context, ElicitParams::Form(form)).await
///     })
///     .build()
/// # }
/// ```
pub async fn elicit(
    server: &str,
    context: &InputContext,
    params: ElicitParams,
) -> Result<ElicitResult, BoxError> {
    if !is_available() {
        return Err("no terminal is available".into());
    }
    let origin = format!("{} (tool {})", sanitize_line(server), short(&context.target));
    let is_abandoned = Arc::new(AtomicBool::new(false));
    let prompter = Prompter { is_abandoned: Arc::clone(&is_abandoned) };
    let _abandon = AbandonOnDrop(is_abandoned);
    let answer = tokio::task::spawn_blocking(move || {
        let _terminal = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
        if prompter.is_abandoned() {
            return Ok(ElicitResult::cancel());
        }
        note(&format!("\n{} asks:", Style::new().bold().for_stderr().apply_to(origin)));
        let answer = match &params {
            ElicitParams::Form(form) => prompter.ask_form(form),
            ElicitParams::Url(url) => ask_url(url),
            _ => Err(io::Error::other("unknown mode of elicitation").into()),
        };
        answer.map_err(|dialoguer::Error::IO(error)| {
            // A menu that fails leaves the cursor hidden.
            let _ = Term::stderr().show_cursor();
            error
        })
    });
    Ok(answer.await??)
}

/// Notifies the blocking thread, when dropped, that its answer is no longer awaited.
struct AbandonOnDrop(Arc<AtomicBool>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        // Relaxed: the flag guards no other memory.
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<T: Transport> ClientBuilder<T> {
    /// Answers forms and URLs at the terminal. `server` is the name that the user knows the server
    /// by, such as its host. See [`crate::terminal`].
    ///
    /// It sets the handlers of [`on_form`](Self::on_form) and [`on_url`](Self::on_url).
    pub fn answer_at_terminal(self, server: impl Into<String>) -> Self {
        let form_server = server.into();
        let url_server = form_server.clone();
        let answer = |server: String, context: InputContext, params| async move {
            elicit(&server, &context, params).await
        };
        self.on_form(move |context, form| {
            answer(form_server.clone(), context, ElicitParams::Form(form))
        })
        .on_url(move |context, url| answer(url_server.clone(), context, ElicitParams::Url(url)))
    }
}

/// Writes a line to standard error. A failure is ignored: without a reader, the line has no
/// purpose.
fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Replaces the characters of untrusted text that would move the cursor, colour the screen or
/// reverse the order of letters: control characters other than line breaks, and marks of
/// bidirectional text.
///
/// ```
/// use mrtr_client::terminal;
///
/// assert_eq!(terminal::sanitize("a\u{1b}[2Jb\nc"), "a\u{fffd}[2Jb\nc");
/// ```
pub fn sanitize(text: &str) -> String {
    let sanitized = |c: char| if c == '\n' || is_harmless(c) { c } else { '\u{fffd}' };
    text.chars().map(sanitized).collect()
}

/// Sanitizes text as [`sanitize`] does, and replaces its line breaks with spaces.
pub fn sanitize_line(text: &str) -> String {
    sanitize(text).replace('\n', " ")
}

type TerminalResult<R> = Result<R, dialoguer::Error>;

/// The user's answer to one field.
enum FieldAnswer {
    Value(Value),
    /// The user left the field out.
    Omitted,
    /// The user left out a field that is required.
    Missing,
    /// The user cancelled the form.
    Dismissed,
}

struct Prompter {
    is_abandoned: Arc<AtomicBool>,
}

impl Prompter {
    fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }

    fn ask_form(&self, form: &FormParams) -> TerminalResult<ElicitResult> {
        note(&indented(&form.message));
        if let Some(result) = confirm("Answer", 0)? {
            return Ok(result);
        }
        let fields = &form.requested_schema.fields;
        let mut answers = Vec::new();
        for field in fields {
            match self.ask_valid_field(field)? {
                Ok(answer) => answers.push((field, answer)),
                Err(result) => return Ok(result),
            }
        }
        // The user has just seen the answer to a single field.
        while fields.len() > 1 {
            if self.is_abandoned() {
                return Ok(abandoned());
            }
            match review(&answers)? {
                Reviewed::Send => break,
                Reviewed::Leave(result) => return Ok(result),
                Reviewed::Change(number) => {
                    let Some((field, answer)) = answers.get_mut(number) else { continue };
                    match self.ask_valid_field(field)? {
                        Ok(changed) => *answer = changed,
                        Err(result) => return Ok(result),
                    }
                }
            }
        }
        let content: Map<_, _> = answers.into_iter().flat_map(|(_, answer)| answer).collect();
        Ok(ElicitResult::accept(content).unwrap_or_else(|_| ElicitResult::cancel()))
    }

    /// Asks for a field until its value is valid. The error ends the form with this result.
    fn ask_valid_field(
        &self,
        field: &Field,
    ) -> TerminalResult<Result<Map<String, Value>, ElicitResult>> {
        let schema = FormSchema::new([field.clone()]);
        loop {
            if self.is_abandoned() {
                return Ok(Err(abandoned()));
            }
            let problem = match ask_field(field)? {
                FieldAnswer::Omitted => return Ok(Ok(Map::new())),
                FieldAnswer::Dismissed => return Ok(Err(ElicitResult::cancel())),
                FieldAnswer::Missing => "This field is required.".to_owned(),
                FieldAnswer::Value(value) => {
                    let content = schema.coerce(Map::from_iter([(field.name.clone(), value)]));
                    match schema.validate(content) {
                        Ok(content) => return Ok(Ok(content)),
                        Err(problems) => problems.to_string(),
                    }
                }
            };
            note(&format!("  {}", sanitize_line(&problem)));
            if self.is_abandoned() {
                return Ok(Err(abandoned()));
            }
            // Some forms have no valid answer, so each failure offers to leave.
            if let Some(result) = confirm("Again", 0)? {
                return Ok(Err(result));
            }
        }
    }
}

/// Tells the user that nothing waits for the answers any more.
fn abandoned() -> ElicitResult {
    note("  The call has ended: nothing is sent.");
    ElicitResult::cancel()
}

/// The choice of the user after all fields have answers.
enum Reviewed {
    Send,
    /// Changes the answer to the field with this number.
    Change(usize),
    Leave(ElicitResult),
}

/// Shows the answers to a form, and lets the user change them before they are sent (specification:
/// elicitation, "Security Considerations").
fn review(answers: &[(&Field, Map<String, Value>)]) -> TerminalResult<Reviewed> {
    let changes = answers.iter().map(|(field, answer)| {
        let value = match answer.values().next() {
            Some(Value::String(text)) => short(text),
            Some(other) => short(&other.to_string()),
            None => NO_ANSWER.to_owned(),
        };
        format!("Change {}: {value}", field_name(field))
    });
    let items = std::iter::once("Send".to_owned()).chain(changes);
    let items = items.chain(["Decline", "Dismiss"].map(str::to_owned));
    let menu = Select::new().with_prompt("Your answers").items(items).default(0);
    let chosen = menu.max_length(MAX_SHOWN).interact_opt()?;
    Ok(match chosen {
        Some(0) => Reviewed::Send,
        Some(number) if number <= answers.len() => Reviewed::Change(number - 1),
        Some(number) if number == answers.len() + 1 => Reviewed::Leave(ElicitResult::decline()),
        _ => Reviewed::Leave(ElicitResult::cancel()),
    })
}

/// The maximum number of menu lines that are shown at a time.
const MAX_SHOWN: usize = 20;

/// Offers to proceed, to decline or to cancel. Returns the result to leave with, or `None` to
/// proceed.
fn confirm(proceed: &str, default: usize) -> TerminalResult<Option<ElicitResult>> {
    let choices = [proceed, "Decline", "Dismiss"];
    Ok(match Select::new().items(choices).default(default).interact_opt()? {
        Some(0) => None,
        Some(1) => Some(ElicitResult::decline()),
        _ => Some(ElicitResult::cancel()),
    })
}

/// Sanitizes a server's message, marks its lines to set them apart from the client's own, and
/// limits it to a screen.
fn indented(message: &str) -> String {
    /// No line of the client's own begins with it.
    const MESSAGE_LINE: &str = "  │ ";
    const MAX_LINES: usize = 20;
    const MAX_CHARS: usize = 2000;
    let truncated: String = message.chars().take(MAX_CHARS).collect();
    let sanitized = sanitize(&truncated);
    let mut lines: Vec<String> =
        sanitized.lines().take(MAX_LINES).map(|line| format!("{MESSAGE_LINE}{line}")).collect();
    if truncated.len() < message.len() || sanitized.lines().count() > MAX_LINES {
        lines.push(format!("{MESSAGE_LINE}…"));
    }
    lines.join("\n")
}

fn ask_url(params: &UrlParams) -> TerminalResult<ElicitResult> {
    /// Consent requires a deliberate choice: the default is to cancel.
    const DISMISS: usize = 2;
    note(&indented(&params.message));
    let bold = Style::new().bold().for_stderr();
    let host = bold.apply_to(sanitize_line(params.host()));
    // The host comes last: a long URL must not move it off the screen.
    note(&format!("  URL   {}\n  host  {host}", sanitize_line(&params.url)));
    if has_punycode(params.host()) {
        note("  The host name contains letters (xn--) that may look like other ones.");
    }
    let consent = ElicitResult::accept_url();
    Ok(confirm("I will go there", DISMISS)?.unwrap_or(consent))
}

/// Returns true if a host has labels with letters outside of ASCII, in their encoded form.
fn has_punycode(host: &str) -> bool {
    // Browsers decode it.
    let host = mrtr_schema::uri::percent_decode_lossy(host);
    let is_encoded =
        |label: &str| label.get(..4).is_some_and(|prefix| prefix.eq_ignore_ascii_case("xn--"));
    !host.is_ascii() || host.split('.').any(is_encoded)
}

fn ask_field(field: &Field) -> TerminalResult<FieldAnswer> {
    let prompt = field_prompt(field);
    match &field.kind {
        FieldKind::Boolean { default, .. } => ask_boolean(prompt, *default, field.required),
        FieldKind::Choice { options, default, .. } => {
            ask_choice(prompt, options, default.as_deref(), field.required)
        }
        FieldKind::Choices { options, default, .. } => {
            ask_choices(prompt, options, default.as_deref().unwrap_or_default(), field.required)
        }
        FieldKind::Number { default, .. } => {
            ask_text(prompt, default.as_ref().map(ToString::to_string), field.required)
        }
        FieldKind::Text { default, .. } => ask_text(prompt, default.clone(), field.required),
        // A kind that was added to the schema later.
        _ => ask_text(prompt, None, field.required),
    }
}

/// Returns the title of a field, its description, or its name.
fn field_name(field: &Field) -> String {
    short(field.title.as_deref().or(field.description.as_deref()).unwrap_or(&field.name))
}

/// Returns the title of a field with its description, or its name.
fn field_prompt(field: &Field) -> String {
    let name = field_name(field);
    match (&field.title, &field.description) {
        (Some(_), Some(description)) => format!("{name} ({})", short(description)),
        _ => name,
    }
}

const NO_ANSWER: &str = "(no answer)";

/// The choice that leaves out an optional field.
fn no_answer(required: bool) -> Option<&'static str> {
    (!required).then_some(NO_ANSWER)
}

fn ask_boolean(
    prompt: String,
    default: Option<bool>,
    required: bool,
) -> TerminalResult<FieldAnswer> {
    let items = ["yes", "no"].into_iter().chain(no_answer(required));
    let first = usize::from(default == Some(false));
    let chosen = Select::new().with_prompt(prompt).items(items).default(first).interact_opt()?;
    Ok(match chosen {
        Some(0) => FieldAnswer::Value(true.into()),
        Some(1) => FieldAnswer::Value(false.into()),
        Some(_) => FieldAnswer::Omitted,
        None => FieldAnswer::Dismissed,
    })
}

/// Returns the answer to a choice among nothing.
fn without_options(required: bool) -> FieldAnswer {
    if required { FieldAnswer::Missing } else { FieldAnswer::Omitted }
}

fn ask_choice(
    prompt: String,
    options: &[ChoiceOption],
    default: Option<&str>,
    required: bool,
) -> TerminalResult<FieldAnswer> {
    if options.is_empty() {
        return Ok(without_options(required));
    }
    let items = options.iter().map(label).chain(no_answer(required).map(str::to_owned));
    let first = options.iter().position(|option| Some(option.value.as_str()) == default);
    let select = Select::new().with_prompt(prompt).items(items).default(first.unwrap_or(0));
    Ok(match select.interact_opt()?.map(|index| options.get(index)) {
        Some(Some(option)) => FieldAnswer::Value(option.value.clone().into()),
        Some(None) => FieldAnswer::Omitted,
        None => FieldAnswer::Dismissed,
    })
}

fn ask_choices(
    prompt: String,
    options: &[ChoiceOption],
    default: &[String],
    required: bool,
) -> TerminalResult<FieldAnswer> {
    if options.is_empty() {
        return Ok(without_options(required));
    }
    let items = options.iter().map(|option| (label(option), default.contains(&option.value)));
    let select = MultiSelect::new().with_prompt(prompt).items_checked(items);
    Ok(match select.interact_opt()? {
        Some(chosen) if chosen.is_empty() && !required => FieldAnswer::Omitted,
        Some(chosen) => {
            let chosen = chosen.into_iter().filter_map(|index| options.get(index));
            FieldAnswer::Value(chosen.map(|option| option.value.clone()).collect())
        }
        None => FieldAnswer::Dismissed,
    })
}

/// Asks for text. A single blank leaves out an optional field that has a default.
fn ask_text(
    prompt: String,
    default: Option<String>,
    required: bool,
) -> TerminalResult<FieldAnswer> {
    // The default comes from the server. If it is not safe to show, it is not offered.
    let default = default.filter(|default| is_safe_default(default));
    // Empty input is accepted here, so that the user can leave the form at a required field.
    let input = Input::<String>::new().with_prompt(prompt).allow_empty(true);
    let input = match default {
        Some(default) => input.default(default),
        None => input,
    };
    let text = input.interact_text()?;
    Ok(match required {
        true if text.is_empty() => FieldAnswer::Missing,
        false if text.trim().is_empty() => FieldAnswer::Omitted,
        _ => FieldAnswer::Value(text.into()),
    })
}

/// Returns true if a default can be shown as it is: a long one could move the name of the server
/// off the screen.
fn is_safe_default(default: &str) -> bool {
    sanitize_line(default) == *default && default.chars().count() <= MAX_SHORT
}

fn label(option: &ChoiceOption) -> String {
    short(option.title.as_deref().unwrap_or(&option.value))
}

/// The longest title, description or name that is shown, in characters.
const MAX_SHORT: usize = 200;

/// Sanitizes a text of the server, and cuts it to [`MAX_SHORT`] characters: a longer one could move
/// the name of the server off the screen.
fn short(text: &str) -> String {
    let line = sanitize_line(text);
    match line.char_indices().nth(MAX_SHORT) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_server_is_sanitized_and_limited() {
        let text = "a\u{1b}[2Jb\r\u{7}\u{202e}c\nd é 🦀";
        assert_eq!(sanitize(text), "a\u{fffd}[2Jb\u{fffd}\u{fffd}\u{fffd}c\nd é 🦀");
        assert_eq!(sanitize_line("a\nb"), "a b");
        let long = indented(&"x\n".repeat(100));
        assert_eq!((long.lines().count(), long.lines().last()), (21, Some("  │ …")));
        assert!(indented(&"x".repeat(5000)).len() < 2020);
        let mut field = Field::text("a");
        (field.title, field.description) = (Some(" ".repeat(5000)), Some("x".repeat(5000)));
        assert!(field_prompt(&field).chars().count() < 2 * MAX_SHORT + 10);
        assert!(
            is_safe_default(&"é".repeat(MAX_SHORT)) && !is_safe_default(&"é".repeat(MAX_SHORT + 1))
        );
        assert!(!is_safe_default("a\u{1b}[2J"));
        for (host, expected) in [
            ("xn--pple-43d.com", true),
            ("login.XN--pple-43d.com", true),
            ("axn--b.com", false),
            ("é", true),
            ("%78n--pple-43d.com", true),
            ("%D0%B0pple.com", true),
            ("apple.com", false),
        ] {
            assert_eq!(has_punycode(host), expected, "{host}");
        }
    }
}
