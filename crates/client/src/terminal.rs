//! Questions at the terminal: forms, and pages to visit. (Feature `terminal`.)
//!
//! Who asks is always shown, and declining and dismissing are always offered. What a server sends is shown without what would move
//! the cursor, colour the screen or turn the order of letters around. A page is shown with its host and its whole URL, and
//! is not opened: the person does that.
//!
//! ```no_run
//! # fn example<X: mrtr_client::Transport>(connection: X) -> mrtr_client::Client<X> {
//! mrtr_client::Client::builder(connection).at_terminal("booking.example").build()
//! # }
//! ```

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dialoguer::console::Style;
use dialoguer::{Input, MultiSelect, Select};
use mrtr_schema::elicitation::{ElicitParams, ElicitResult, FormParams, UrlParams};
use mrtr_schema::form::{ChoiceOption, Field, FieldKind, FormSchema};
use mrtr_transport::{BoxError, Transport};
use serde_json::{Map, Value};

use crate::builder::ClientBuilder;
use crate::handlers::Question;

/// There is one terminal, and the questions of a round come at once.
static TERMINAL: Mutex<()> = Mutex::new(());

/// Whether there is somebody to ask: standard input and standard error are a terminal.
pub fn is_there() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks, on standard error, and says that it is `server` who asks. One question at a time; the others wait.
///
/// # Errors
///
/// If there is no terminal, or it went away. Dropping the future leaves the line that is being typed on the screen; with it, the
/// question ends.
pub async fn ask(
    server: &str,
    question: &Question,
    params: ElicitParams,
) -> Result<ElicitResult, BoxError> {
    if !is_there() {
        return Err("there is no terminal to ask at".into());
    }
    let who = format!("{} (tool {})", flat(server), flat(&question.target));
    let given_up = Arc::new(AtomicBool::new(false));
    let person = Person { given_up: Arc::clone(&given_up) };
    let _give_up = GiveUp(given_up);
    let asking = tokio::task::spawn_blocking(move || {
        let _alone = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
        if person.is_gone() {
            return Ok(ElicitResult::cancel());
        }
        note(&format!("\n{} asks:", Style::new().bold().for_stderr().apply_to(who)));
        match &params {
            ElicitParams::Form(form) => person.ask_form(form),
            ElicitParams::Url(url) => ask_url(url),
            _ => Err(io::Error::other("unknown mode of elicitation").into()),
        }
    });
    Ok(asking.await??)
}

/// Tells the thread that asks that nobody waits for the answer any more.
struct GiveUp(Arc<AtomicBool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<X: Transport> ClientBuilder<X> {
    /// Asks at the terminal: forms, and pages to visit. `server` is what the person knows the server by, such as its host.
    /// See [`crate::terminal`].
    pub fn at_terminal(self, server: impl Into<String>) -> Self {
        let server = server.into();
        let same = server.clone();
        let asking = |server: String, question: Question, params| async move {
            ask(&server, &question, params).await
        };
        self.on_form(move |question, form| {
            asking(server.clone(), question, ElicitParams::Form(form))
        })
        .on_url(move |question, url| asking(same.clone(), question, ElicitParams::Url(url)))
    }
}

/// A line for the person. If it cannot be shown, nobody reads.
fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// What somebody else sent, without what would move the cursor, colour the screen, or turn the order of letters around.
pub fn plain(text: &str) -> String {
    let is_harmless = |c: char| match c {
        '\n' => true,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => false,
        other => !other.is_control(),
    };
    text.chars().map(|c| if is_harmless(c) { c } else { '\u{fffd}' }).collect()
}

/// As [`plain`], on one line.
pub fn flat(text: &str) -> String {
    plain(text).replace('\n', " ")
}

type Asked<T> = Result<T, dialoguer::Error>;

/// What became of a field.
enum Filled {
    With(Value),
    /// It is left out.
    Not,
    /// The person dismissed the form.
    Left,
}

struct Person {
    given_up: Arc<AtomicBool>,
}

impl Person {
    fn is_gone(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    fn ask_form(&self, form: &FormParams) -> Asked<ElicitResult> {
        note(&quoted(&form.message));
        if let Some(no) = leave("Answer", 0)? {
            return Ok(no);
        }
        let mut content = Map::new();
        for field in &form.requested_schema.fields {
            loop {
                if self.is_gone() {
                    return Ok(ElicitResult::cancel());
                }
                let value = match ask_field(field)? {
                    Filled::With(value) => value,
                    Filled::Not => break,
                    Filled::Left => return Ok(ElicitResult::cancel()),
                };
                // The whole form's rules, for this field.
                let alone = FormSchema::new([field.clone()]);
                match alone.validate(alone.coerce(Map::from_iter([(field.name.clone(), value)]))) {
                    Ok(filled) => {
                        content.extend(filled);
                        break;
                    }
                    Err(problems) => {
                        note(&format!("  {}", flat(&problems.to_string())));
                        // There are forms that nobody can fill in.
                        if let Some(no) = leave("Again", 0)? {
                            return Ok(no);
                        }
                    }
                }
            }
        }
        Ok(ElicitResult::accept(content).unwrap_or_else(|_| ElicitResult::cancel()))
    }
}

/// Whether to go on; if not, how.
fn leave(go_on: &str, first: usize) -> Asked<Option<ElicitResult>> {
    let choices = [go_on, "Decline", "Dismiss"];
    Ok(match Select::new().items(choices).default(first).interact_opt()? {
        Some(0) => None,
        Some(1) => Some(ElicitResult::decline()),
        _ => Some(ElicitResult::cancel()),
    })
}

/// A message, moved to the right, so that it is seen to be somebody else's, and no longer than a screen.
fn quoted(message: &str) -> String {
    const LINES: usize = 20;
    const CHARACTERS: usize = 2000;
    let short: String = message.chars().take(CHARACTERS).collect();
    let plain = plain(&short);
    let mut lines: Vec<String> =
        plain.lines().take(LINES).map(|line| format!("  {line}")).collect();
    if short.len() < message.len() || plain.lines().count() > LINES {
        lines.push("  …".to_owned());
    }
    lines.join("\n")
}

fn ask_url(params: &UrlParams) -> Asked<ElicitResult> {
    note(&quoted(&params.message));
    let bold = Style::new().bold().for_stderr();
    let host = bold.apply_to(flat(params.host()));
    note(&format!("  host  {host}\n  URL   {}", flat(&params.url)));
    let consent = ElicitResult::accept_url();
    Ok(leave("I will go there", 2)?.unwrap_or(consent))
}

fn ask_field(field: &Field) -> Asked<Filled> {
    let name = field.title.as_deref().or(field.description.as_deref()).unwrap_or(&field.name);
    let mut prompt = flat(name);
    if let (Some(_), Some(description)) = (&field.title, &field.description) {
        prompt = format!("{prompt} ({})", flat(description));
    }
    let none = (!field.required).then_some("(no answer)");
    match &field.kind {
        FieldKind::Boolean { default, .. } => {
            let first = usize::from(*default == Some(false));
            let items = ["yes", "no"].into_iter().chain(none);
            let chosen =
                Select::new().with_prompt(prompt).items(items).default(first).interact_opt()?;
            Ok(match chosen {
                Some(yes @ (0 | 1)) => Filled::With((yes == 0).into()),
                Some(_) => Filled::Not,
                None => Filled::Left,
            })
        }
        FieldKind::Choice { options, default, .. } => {
            let items = options.iter().map(shown).chain(none.map(str::to_owned));
            let first = options.iter().position(|option| Some(&option.value) == default.as_ref());
            let select = Select::new().with_prompt(prompt).items(items).default(first.unwrap_or(0));
            Ok(match select.interact_opt()? {
                Some(at) => options
                    .get(at)
                    .map_or(Filled::Not, |option| Filled::With(option.value.clone().into())),
                None => Filled::Left,
            })
        }
        FieldKind::Choices { options, default, .. } => {
            let chosen_before = |option: &ChoiceOption| {
                default.as_ref().is_some_and(|all| all.contains(&option.value))
            };
            let items = options.iter().map(|option| (shown(option), chosen_before(option)));
            let select = MultiSelect::new().with_prompt(prompt).items_checked(items);
            Ok(match select.interact_opt()? {
                Some(none) if none.is_empty() && !field.required => Filled::Not,
                Some(chosen) => {
                    let values = chosen.into_iter().filter_map(|at| options.get(at));
                    Filled::With(values.map(|option| option.value.clone()).collect())
                }
                None => Filled::Left,
            })
        }
        FieldKind::Number { default, .. } => {
            ask_text(prompt, default.as_ref().map(ToString::to_string), field.required)
        }
        FieldKind::Text { default, .. } => ask_text(prompt, default.clone(), field.required),
        // A kind that is newer than this program.
        _ => ask_text(prompt, None, field.required),
    }
}

/// An optional field with a default is left out by a single blank.
fn ask_text(prompt: String, default: Option<String>, required: bool) -> Asked<Filled> {
    // What stands there at first is somebody else's too: what would drive the terminal is not shown, and so not offered.
    let default = default.filter(|default| flat(default) == *default);
    let input = Input::<String>::new().with_prompt(prompt).allow_empty(!required);
    let input = match default {
        Some(default) => input.default(default),
        None => input,
    };
    let text = input.interact_text()?;
    let is_left_out = text.is_empty() || (!required && text.trim().is_empty());
    Ok(if is_left_out { Filled::Not } else { Filled::With(text.into()) })
}

fn shown(option: &ChoiceOption) -> String {
    flat(option.title.as_deref().unwrap_or(&option.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_sends_does_not_drive_the_terminal() {
        let text = "a\u{1b}[2Jb\r\u{7}\u{202e}c\nd é 🦀";
        assert_eq!(plain(text), "a\u{fffd}[2Jb\u{fffd}\u{fffd}\u{fffd}c\nd é 🦀");
        assert_eq!(flat("a\nb"), "a b");
        let long = quoted(&"x\n".repeat(100));
        assert_eq!((long.lines().count(), long.lines().last()), (21, Some("  …")));
        assert!(quoted(&"x".repeat(5000)).len() < 2020);
    }
}
