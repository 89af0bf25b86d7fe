//! Checks of conversations with a model: the rules of the specification that the types do not
//! express (client, "Sampling": "Message Content Constraints" and "Model Preferences").

use super::{
    CreateMessageParams, CreateMessageResult, ModelPreferences, SamplingContent, SamplingMessage,
};
use crate::InvalidValue;
use crate::content::Role;
use crate::content::validate::{validate_base64, validate_media_type};
use crate::peer_text::quote;

impl CreateMessageParams {
    /// Checks the rules that the types do not express.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if a priority is not between 0 and 1, an image or audio is malformed, or
    /// tool uses and tool results do not match.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        if let Some(preferences) = &self.model_preferences {
            validate_priorities(preferences).map_err(|e| e.at("modelPreferences"))?;
        }
        let mut previous: &[SamplingContent] = &[];
        for (n, message) in self.messages.iter().enumerate() {
            validate_media(message.content.blocks())
                .and_then(|()| validate_tool_use(previous, message))
                .map_err(|e| e.at(n).at("messages"))?;
            previous = message.content.blocks();
        }
        if tool_uses(previous).next().is_some() {
            let reason = "the last message uses tools, but their results are missing";
            return Err(InvalidValue::new(reason).at("messages"));
        }
        Ok(())
    }
}

impl CreateMessageResult {
    /// Checks the rules that the types do not express. `may_use_tools` is true if the request lets
    /// the model use tools.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if an image or audio is malformed, or if a block uses a tool although it
    /// must not, or is the result of a tool.
    pub fn validate(&self, may_use_tools: bool) -> Result<(), InvalidValue> {
        let blocks = self.content.blocks();
        validate_media(blocks)?;
        for block in blocks {
            match block {
                SamplingContent::ToolUse(used) if !may_use_tools => {
                    let tool = quote(&used.name);
                    let reason = format!("uses the tool {tool}, which the request does not allow");
                    return Err(InvalidValue::new(reason).at("content"));
                }
                SamplingContent::ToolResult(_) => {
                    let reason = "a result must not contain results of tools";
                    return Err(InvalidValue::new(reason).at("content"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn validate_priorities(preferences: &ModelPreferences) -> Result<(), InvalidValue> {
    for (name, priority) in [
        ("costPriority", preferences.cost_priority),
        ("speedPriority", preferences.speed_priority),
        ("intelligencePriority", preferences.intelligence_priority),
    ] {
        if priority.is_some_and(|priority| !(0.0..=1.0).contains(&priority)) {
            return Err(InvalidValue::new("must be between 0 and 1").at(name));
        }
    }
    Ok(())
}

fn validate_media(blocks: &[SamplingContent]) -> Result<(), InvalidValue> {
    for (n, block) in blocks.iter().enumerate() {
        if let SamplingContent::Image(media) | SamplingContent::Audio(media) = block {
            validate_base64(&media.data)
                .map_err(|e| e.at("data"))
                .and_then(|()| validate_media_type(&media.mime_type).map_err(|e| e.at("mimeType")))
                // A single block is written without a list.
                .map_err(|e| if blocks.len() == 1 { e } else { e.at(n) })
                .map_err(|e| e.at("content"))?;
        }
    }
    Ok(())
}

/// Checks that `message` may follow a message with the blocks `previous`.
fn validate_tool_use(
    previous: &[SamplingContent],
    message: &SamplingMessage,
) -> Result<(), InvalidValue> {
    let blocks = message.content.blocks();
    let results: Vec<_> = tool_results(blocks).collect();
    if tool_uses(blocks).next().is_some() && message.role != Role::Assistant {
        return Err(InvalidValue::new("only the assistant may use tools"));
    }
    if !results.is_empty() && (message.role != Role::User || results.len() < blocks.len()) {
        return Err(InvalidValue::new(
            "tool results must be in a message of the user, without other content",
        ));
    }
    if tool_uses(previous).any(|id| !results.contains(&id)) {
        return Err(InvalidValue::new(
            "must contain the results of all tools that the previous message uses",
        ));
    }
    let matches = |id: &&str| tool_uses(previous).filter(|used| used == id).count() == 1;
    if results.len() != tool_uses(previous).count() || !results.iter().all(matches) {
        return Err(InvalidValue::new(
            "contains the result of a tool that the previous message does not use",
        ));
    }
    Ok(())
}

/// Returns the ids of the tool uses.
fn tool_uses(blocks: &[SamplingContent]) -> impl Iterator<Item = &str> {
    blocks.iter().filter_map(|block| match block {
        SamplingContent::ToolUse(tool) => Some(tool.id.as_str()),
        _ => None,
    })
}

/// Returns the ids of the tool uses that have a result.
fn tool_results(blocks: &[SamplingContent]) -> impl Iterator<Item = &str> {
    blocks.iter().filter_map(|block| match block {
        SamplingContent::ToolResult(result) => Some(result.tool_use_id.as_str()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn validate(messages: &Value) -> Result<(), InvalidValue> {
        let params = json!({ "messages": messages, "maxTokens": 5 });
        serde_json::from_value::<CreateMessageParams>(params).unwrap().validate()
    }

    #[test]
    fn sampling_validation_requires_matching_tool_uses_and_results() {
        let text = || json!({ "type": "text", "text": "x" });
        let usage = |id: &str| json!({ "type": "tool_use", "id": id, "name": "t", "input": {} });
        let result = |id: &str| json!({ "type": "tool_result", "toolUseId": id, "content": [] });
        let media =
            |data: &str, mime: &str| json!({ "type": "image", "data": data, "mimeType": mime });
        let user = |content: &[Value]| json!({ "role": "user", "content": content });
        let model = |content: &[Value]| json!({ "role": "assistant", "content": content });
        let result_of = |content: &Value, may_use_tools| {
            let result = json!({ "role": "assistant", "content": content, "model": "m" });
            serde_json::from_value::<CreateMessageResult>(result).unwrap().validate(may_use_tools)
        };
        assert_eq!(result_of(&text(), false), Ok(()));
        assert_eq!(result_of(&usage("1"), true), Ok(()));
        for wrong in [usage("1"), result("1"), media("no base64", "image/png"), media("", "png")] {
            assert!(result_of(&wrong, false).is_err(), "{wrong}");
        }
        assert!(result_of(&result("1"), true).is_err());
        let ask = user(&[text()]);
        for fine in [
            json!([ask]),
            json!([ask, model(&[text()]), ask]),
            json!([ask, model(&[usage("1"), text()]), user(&[result("1")]), ask]),
            json!([ask, model(&[usage("1"), usage("2")]), user(&[result("2"), result("1")])]),
        ] {
            assert_eq!(validate(&fine), Ok(()), "{fine}");
        }
        let both = model(&[usage("1"), usage("2")]);
        for (wrong, part) in [
            (json!([user(&[usage("1")]), user(&[result("1")])]), "/messages/0: only the assistant"),
            (
                json!([ask, model(&[usage("1")]), user(&[result("1"), text()])]),
                "without other content",
            ),
            (json!([ask, model(&[usage("1")]), model(&[result("1")])]), "message of the user"),
            (json!([ask, model(&[usage("1")]), ask]), "the results of all"),
            (json!([ask, both, user(&[result("1")])]), "the results of all"),
            (json!([ask, model(&[usage("1")]), user(&[result("1"), result("2")])]), "does not use"),
            (json!([ask, model(&[usage("1")]), user(&[result("1"), result("1")])]), "does not use"),
            (json!([user(&[result("1")])]), "does not use"),
            (json!([user(&[media("no base64", "image/png")])]), "base64"),
            (json!([user(&[media("AAAA", "png")])]), "media type"),
            (json!([ask, model(&[usage("1")])]), "results are missing"),
        ] {
            let error = validate(&wrong).unwrap_err().to_string();
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }

    #[test]
    fn sampling_validation_requires_priorities_between_0_and_1() {
        for (priority, fits) in [(0.0, true), (1.0, true), (-0.1, false), (1.1, false)] {
            for name in ["costPriority", "speedPriority", "intelligencePriority"] {
                let params = json!({ "messages": [], "maxTokens": 5, "modelPreferences": { name: priority } });
                let params: CreateMessageParams = serde_json::from_value(params).unwrap();
                assert_eq!(params.validate().is_ok(), fits, "{name} {priority}");
            }
        }
        let mut params = CreateMessageParams::user("x", 5);
        params.model_preferences =
            Some(ModelPreferences { cost_priority: Some(f64::NAN), ..Default::default() });
        assert!(params.validate().is_err());
    }
}
