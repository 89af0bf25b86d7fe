//! Answers from a file.

use std::fmt;
use std::path::Path;

use mrtr::schema::elicitation::ElicitParams;
use mrtr::schema::input::InputRequest;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::{Failure, Result};

/// Reads a file of JSON.
pub(crate) fn read_json<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let wrong = |why: &dyn fmt::Display| Failure::usage(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    serde_json::from_str(&text).map_err(|error| wrong(&error))
}

/// Answers that were written down beforehand, by the questions' keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers(Map<String, Value>);

impl Answers {
    pub(crate) fn read(file: &Path) -> Result<Self> {
        match read_json(file)? {
            Value::Object(answers) => Ok(Self(answers)),
            _ => {
                let file = file.display();
                let why = format!("{file}: answers are an object, with the questions' keys");
                Err(Failure::usage(why))
            }
        }
    }

    /// The answer to a question, as it is sent.
    pub(crate) fn to(&self, key: &str, request: &InputRequest) -> Option<Value> {
        let answer = self.0.get(key)?;
        Some(match (request, answer) {
            // The contents of a form alone are one that was submitted.
            (InputRequest::Elicit(ElicitParams::Form(form)), Value::Object(content))
                if !content.contains_key("action") =>
            {
                let content = form.requested_schema.coerce(content.clone());
                json!({ "action": "accept", "content": content })
            }
            _ => answer.clone(),
        })
    }
}
