//! Who answers: a person at the terminal, or a script.

use std::io::{self, BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};

use mrtr::ElicitResult;
use mrtr::schema::Object;
use mrtr::schema::elicitation::FormParams;
use mrtr::schema::form::{Field, FieldKind};
use serde_json::{Value, json};

use crate::show::Show;

#[derive(Clone)]
pub struct Person {
    /// Held while a form is filled in: the questions of a round come at the same time, but there is
    /// one terminal.
    terminal: Option<Arc<Mutex<()>>>,
}

impl Person {
    pub fn at_terminal() -> Self {
        Self { terminal: Some(Arc::default()) }
    }

    pub fn scripted() -> Self {
        Self { terminal: None }
    }

    pub async fn fill_in(
        &self,
        key: &str,
        form: &FormParams,
        show: &Show,
    ) -> io::Result<ElicitResult> {
        let Some(terminal) = self.terminal.clone() else {
            let answer = match key {
                "seat" => json!({ "place": "outside" }),
                "diet" => json!({ "avoid": "peanuts" }),
                "deposit" => json!({ "pay": true }),
                _ => return Ok(ElicitResult::decline()),
            };
            show.answer(key, &answer.to_string());
            return Ok(ElicitResult::accept(answer)?);
        };
        let (form, show) = (form.clone(), show.clone());
        let asked = tokio::task::spawn_blocking(move || {
            let _alone = terminal.lock().unwrap_or_else(PoisonError::into_inner);
            ask(&form, &show)
        });
        asked.await.map_err(io::Error::other)?
    }
}

fn ask(form: &FormParams, show: &Show) -> io::Result<ElicitResult> {
    show.question(&form.message);
    let mut content = Object::new();
    for field in &form.requested_schema.fields {
        loop {
            let Some(text) = read_line(&prompt(field))? else {
                return Ok(ElicitResult::cancel());
            };
            match read(field, text.trim()) {
                Ok(None) => break,
                Ok(Some(value)) => {
                    content.insert(field.name.clone(), value);
                    break;
                }
                Err(why) => show.hint(&why),
            }
        }
    }
    Ok(ElicitResult::accept(content)?)
}

fn prompt(field: &Field) -> String {
    let name = field.description.as_deref().or(field.title.as_deref()).unwrap_or(&field.name);
    let choices = match &field.kind {
        FieldKind::Boolean { .. } => " [y/n]".to_owned(),
        FieldKind::Choice { options, .. } => {
            let all: Vec<_> =
                options.iter().map(|o| o.title.as_deref().unwrap_or(&o.value)).collect();
            format!(" [{}]", all.join("/"))
        }
        _ => String::new(),
    };
    format!("      {name}{choices}: ")
}

/// The value that `text` stands for; `None` leaves an optional field empty.
fn read(field: &Field, text: &str) -> Result<Option<Value>, String> {
    if text.is_empty() {
        return if field.required { Err("This one is needed.".to_owned()) } else { Ok(None) };
    }
    match &field.kind {
        FieldKind::Boolean { .. } => match text.to_lowercase().as_str() {
            "y" | "yes" => Ok(Some(true.into())),
            "n" | "no" => Ok(Some(false.into())),
            _ => Err("Please answer y or n.".to_owned()),
        },
        FieldKind::Number { .. } => {
            text.parse().map(Some).map_err(|_| "Please enter a number.".to_owned())
        }
        FieldKind::Choice { options, .. } => {
            let chosen =
                options.iter().find(|o| o.value.to_lowercase().starts_with(&text.to_lowercase()));
            chosen
                .map(|o| Some(o.value.clone().into()))
                .ok_or_else(|| "Please choose one of these.".to_owned())
        }
        _ => Ok(Some(text.into())),
    }
}

/// A line from the person; `None` if they have left.
fn read_line(prompt: &str) -> io::Result<Option<String>> {
    print!("{prompt}");
    io::stdout().flush()?;
    let mut line = String::new();
    Ok((io::stdin().lock().read_line(&mut line)? > 0).then_some(line))
}
