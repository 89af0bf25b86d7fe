//! Answers from a file.

use std::path::Path;

use mrtr::schema::elicitation::ElicitParams;
use mrtr::schema::input::InputRequest;
use serde_json::{Map, Value, json};

use crate::{Failure, Result};

/// Answers that were written down beforehand, by the questions' keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers(Map<String, Value>);

impl Answers {
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let wrong = |why: String| Failure::usage(format!("{}: {why}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
        let answers = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        match answers {
            Value::Object(answers) => Ok(Self(answers)),
            _ => Err(wrong("answers are an object, with the questions' keys".to_owned())),
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
