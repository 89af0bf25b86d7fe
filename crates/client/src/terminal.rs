//! Questions at the terminal: forms, and pages to visit. (Feature `terminal`.)
//!
//! Who asks is always shown, and declining and dismissing are always offered. What a server sends is shown without what would move
//! the cursor, colour the screen or turn the order of letters around. A page is shown with its host and its whole URL, and
//! is not opened: the person does that.
//!
//! ```no_run
//! # fn example<X: mrtr_client::Exchange>(connection: X) -> mrtr_client::Client<X> {
//! mrtr_client::Client::builder(connection).at_terminal("booking.example").build()
//! # }
//! ```

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use dialoguer::console::Style;
use dialoguer::{Confirm, Input, MultiSelect, Select};
use mrtr_schema::elicitation::{ElicitAction, ElicitParams, ElicitResult, FormParams, UrlParams};
use mrtr_schema::form::{ChoiceOption, Field, FieldKind, FormSchema};
use mrtr_transport::Exchange;
use serde_json::{Map, Value};

use crate::builder::ClientBuilder;
use crate::handlers::{BoxError, Question};

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
/// If there is no terminal, or it went away. Dropping the future does not take the question off the screen.
pub async fn ask(
    server: &str,
    question: &Question,
    params: ElicitParams,
) -> Result<ElicitResult, BoxError> {
    if !is_there() {
        return Err("there is no terminal to ask at".into());
    }
    let who = format!("{} (tool {})", flat(server), flat(&question.target));
    let asking = tokio::task::spawn_blocking(move || {
        let _alone = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
        note(&format!("\n{} asks:", Style::new().bold().for_stderr().apply_to(who)));
        match &params {
            ElicitParams::Form(form) => ask_form(form),
            ElicitParams::Url(url) => ask_url(url),
        }
    });
    Ok(asking.await??)
}

impl<X: Exchange> ClientBuilder<X> {
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

fn ask_form(form: &FormParams) -> Asked<ElicitResult> {
    note(&plain(&form.message));
    match Select::new().items(["Answer", "Decline", "Dismiss"]).default(0).interact_opt()? {
        Some(0) => {}
        Some(1) => return Ok(ElicitResult::decline()),
        _ => return Ok(ElicitResult::cancel()),
    }
    let mut content = Map::new();
    for field in &form.requested_schema.fields {
        loop {
            let Some(value) = ask_field(field)? else { break };
            // The whole form's rules, for this field.
            let alone = FormSchema::new([field.clone()]);
            match alone.check(alone.coerce(Map::from_iter([(field.name.clone(), value)]))) {
                Ok(filled) => {
                    content.extend(filled);
                    break;
                }
                Err(problems) => note(&format!("  {}", flat(&problems.to_string()))),
            }
        }
    }
    Ok(ElicitResult::accept(content).unwrap_or_else(|_| ElicitResult::cancel()))
}

fn ask_url(params: &UrlParams) -> Asked<ElicitResult> {
    note(&plain(&params.message));
    let host = params.url.split('/').nth(2).unwrap_or_default();
    let bold = Style::new().bold().for_stderr();
    note(&format!("  host  {}\n  URL   {}", bold.apply_to(flat(host)), flat(&params.url)));
    let choices = ["I will go there", "Decline", "Dismiss"];
    Ok(match Select::new().items(choices).default(2).interact_opt()? {
        Some(0) => ElicitResult { action: ElicitAction::Accept, content: None },
        Some(1) => ElicitResult::decline(),
        _ => ElicitResult::cancel(),
    })
}

/// A field's value; `None` leaves it empty.
fn ask_field(field: &Field) -> Asked<Option<Value>> {
    let name = field.title.as_deref().or(field.description.as_deref()).unwrap_or(&field.name);
    let mut prompt = flat(name);
    if let (Some(_), Some(description)) = (&field.title, &field.description) {
        prompt = format!("{prompt} ({})", flat(description));
    }
    match &field.kind {
        FieldKind::Boolean { default } => {
            let confirm = Confirm::new().with_prompt(prompt);
            let confirm = match default {
                Some(default) => confirm.default(*default),
                None => confirm,
            };
            Ok(Some(confirm.interact()?.into()))
        }
        FieldKind::Choice { options, default } => {
            let mut items: Vec<String> = options.iter().map(shown).collect();
            if !field.required {
                items.push("(none of these)".to_owned());
            }
            let first = options.iter().position(|option| Some(&option.value) == default.as_ref());
            let select = Select::new().with_prompt(prompt).items(items).default(first.unwrap_or(0));
            let chosen = select.interact()?;
            Ok(options.get(chosen).map(|option| option.value.clone().into()))
        }
        FieldKind::Choices { options, default, .. } => {
            let chosen_before = |option: &ChoiceOption| {
                default.as_ref().is_some_and(|all| all.contains(&option.value))
            };
            let items = options.iter().map(|option| (shown(option), chosen_before(option)));
            let chosen = MultiSelect::new().with_prompt(prompt).items_checked(items).interact()?;
            let values = chosen.into_iter().filter_map(|at| options.get(at));
            Ok(Some(values.map(|option| option.value.clone()).collect()))
        }
        FieldKind::Number { default, .. } => {
            let default = default.as_ref().map(ToString::to_string);
            Ok(ask_text(prompt, default, field.required)?.map(Value::String))
        }
        FieldKind::Text { default, .. } => {
            Ok(ask_text(prompt, default.clone(), field.required)?.map(Value::String))
        }
        // A kind that is newer than this program.
        _ => Ok(ask_text(prompt, None, field.required)?.map(Value::String)),
    }
}

fn ask_text(prompt: String, default: Option<String>, required: bool) -> Asked<Option<String>> {
    let input = Input::<String>::new().with_prompt(prompt).allow_empty(!required);
    let input = match default {
        Some(default) => input.default(default),
        None => input,
    };
    Ok(Some(input.interact_text()?).filter(|text| !text.is_empty()))
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
    }
}
