//! Calls whose questions are answered from a file or at the terminal.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use mrtr::client::{InputContext, Transport};
use mrtr::schema::content::{ContentBlock, EmbeddedResource};
use mrtr::schema::elicitation::ElicitParams;
use mrtr::schema::input::InputRequest;
use mrtr::schema::tool::CallToolResult;
use mrtr::terminal::{self, sanitize, sanitize_line};
use mrtr::{ClientBuilder, ElicitResult};
use serde_json::value::{RawValue, to_raw_value};

use crate::answers::Answers;
use crate::failure::{Failure, Result};
use crate::output::{self, dim};

/// Answers questions from the file, and otherwise asks at the terminal in the name of `server`.
/// Shows progress.
pub(crate) fn answer<T: Transport>(
    client: ClientBuilder<T>,
    server: String,
    answers: Answers,
) -> ClientBuilder<T> {
    let ask = move |context: InputContext, params: ElicitParams| {
        let (answers, server) = (answers.clone(), server.clone());
        async move {
            let request = InputRequest::Elicit(params.clone());
            if let Some(answer) = answers.to(&context.key, &request) {
                if let ElicitParams::Url(url) = &params {
                    let key = sanitize_line(&context.key);
                    output::note(&format!("{key}: {}", sanitize_line(&url.url)));
                }
                return Ok(serde_json::from_value::<ElicitResult>(answer)?);
            }
            if !terminal::is_available() {
                let key = &context.key;
                let message = format!("no answer to {key:?}: not in --answers, and no terminal");
                return Err(message.into());
            }
            let answer = terminal::elicit(&server, &context, params).await;
            if answer.as_ref().is_err_and(|error| is_interrupted(&**error)) {
                // The signal ends the program.
                std::future::pending::<()>().await;
            }
            answer
        }
    };
    let ask = Arc::new(ask);
    let forms = Arc::clone(&ask);
    client
        .with_tasks()
        .on_form(move |context, form| forms(context, ElicitParams::Form(form)))
        .on_url(move |context, url| ask(context, ElicitParams::Url(url)))
        .on_progress(|progress| {
            let share = progress.total.filter(|total| *total > 0.0).map_or_else(
                || format!("{}", progress.progress),
                |total| format!("{:3.0} %", 100.0 * progress.progress / total),
            );
            output::note(&dim(&format!(
                "{share} {}",
                sanitize_line(progress.message.as_deref().unwrap_or_default())
            )));
        })
}

/// Returns true if the user pressed Ctrl-C at a menu.
fn is_interrupted(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::Interrupted)
}

/// Reads arguments that are given as an object. Its text is kept: a number may have more digits
/// than the types of this program.
pub(crate) fn arguments_object(text: &str) -> std::result::Result<Box<RawValue>, String> {
    let arguments: Box<RawValue> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if arguments.get().starts_with('{') {
        Ok(arguments)
    } else {
        Err("expected a JSON object".to_owned())
    }
}

/// Reads arguments that are given one by one, as `NAME=VALUE`. A value that is not JSON is text.
pub(crate) fn named_arguments<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
) -> Result<Box<RawValue>> {
    let mut named = BTreeMap::new();
    for argument in arguments {
        let (name, value) = argument
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("argument {argument:?}: expected NAME=VALUE")))?;
        let value = serde_json::from_str::<Box<RawValue>>(value)
            .or_else(|_| to_raw_value(value))
            .map_err(Failure::usage)?;
        if named.insert(name, value).is_some() {
            return Err(Failure::usage(format!("argument {name}: given more than once")));
        }
    }
    to_raw_value(&named).map_err(Failure::usage)
}

/// Prints the result of a call: texts, and a line for each other block. A result without content
/// is the structured one.
pub(crate) fn show_result(result: &CallToolResult) {
    if let (true, Some(structured)) = (result.content.is_empty(), &result.structured_content) {
        return output::json(structured);
    }
    for block in &result.content {
        let line = match block {
            ContentBlock::Text(text) => sanitize(&text.text),
            ContentBlock::Image(image) => format!("[image: {}]", sanitize_line(&image.mime_type)),
            ContentBlock::Audio(audio) => format!("[audio: {}]", sanitize_line(&audio.mime_type)),
            ContentBlock::ResourceLink(link) => format!("[link: {}]", sanitize_line(&link.uri)),
            ContentBlock::Resource(EmbeddedResource { resource, .. }) => {
                let uri = format!("[resource: {}]", sanitize_line(&resource.uri));
                let text = resource.text.as_deref().map(|text| format!("\n{}", sanitize(text)));
                uri + &text.unwrap_or_default()
            }
            _ => "[content of another type]".to_owned(),
        };
        output::line(&line);
    }
}
