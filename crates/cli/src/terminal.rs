//! Questions at the terminal.

use std::io::{self, IsTerminal};

use dialoguer::{Confirm, Input, MultiSelect, Select};
use mrtr::ElicitResult;
use mrtr::schema::elicitation::{ElicitParams, FormParams, UrlParams};
use mrtr::schema::form::{ChoiceOption, Field, FieldKind, FormSchema};
use serde_json::{Map, Value, json};

use crate::show::{bold, flat, note, plain};

type Asked<T> = Result<T, dialoguer::Error>;

/// Whether there is somebody to ask.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks, and says who asks. Declining and dismissing are always offered.
pub(crate) fn ask(who: &str, params: &ElicitParams) -> Asked<ElicitResult> {
    note(&format!("\n{} {}", bold(&flat(who)), "asks:"));
    match params {
        ElicitParams::Form(form) => ask_form(form),
        ElicitParams::Url(url) => ask_url(url),
    }
}

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
            match alone.check(Map::from_iter([(field.name.clone(), value.clone())])) {
                Ok(_) => {
                    content.insert(field.name.clone(), value);
                    break;
                }
                Err(problems) => note(&format!("  {}", flat(&problems.to_string()))),
            }
        }
    }
    Ok(ElicitResult::accept(content).unwrap_or_else(|_| ElicitResult::cancel()))
}

/// Shows where it leads, whole, and asks for consent. Nothing is opened: the person does that.
fn ask_url(params: &UrlParams) -> Asked<ElicitResult> {
    note(&plain(&params.message));
    let host = params.url.split('/').nth(2).unwrap_or_default();
    note(&format!("  host  {}\n  URL   {}", bold(&flat(host)), flat(&params.url)));
    let choices = ["I will go there", "Decline", "Dismiss"];
    Ok(match Select::new().items(choices).default(2).interact_opt()? {
        Some(0) => ElicitResult {
            content: None,
            ..ElicitResult::accept(json!({})).unwrap_or_else(|_| ElicitResult::cancel())
        },
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
            let text = ask_text(prompt, default, field.required)?;
            // What is no number is told so by the form.
            Ok(text.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text))))
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
