//! Answers from a file.

use std::fmt;
use std::path::Path;

use mrtr::schema::elicitation::ElicitParams;
use mrtr::schema::input::InputRequest;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::failure::{Failure, Result};

/// Reads a JSON file.
pub(crate) fn read_json<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let invalid =
        |reason: &dyn fmt::Display| Failure::usage(format!("{}: {reason}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| invalid(&error))?;
    serde_json::from_str(&text).map_err(|error| invalid(&error))
}

/// Prepared answers, by the keys of the questions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers(Map<String, Value>);

impl Answers {
    pub(crate) fn read(file: &Path) -> Result<Self> {
        match read_json(file)? {
            Value::Object(answers) => Ok(Self(answers)),
            _ => {
                let file = file.display();
                let message = format!("{file}: expected a JSON object of answers by question key");
                Err(Failure::usage(message))
            }
        }
    }

    /// Returns the answer to a question in the form in which it is sent.
    pub(crate) fn to(&self, key: &str, request: &InputRequest) -> Option<Value> {
        let answer = self.0.get(key)?;
        Some(match (request, answer) {
            // Plain content of a form means that the user accepts.
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
