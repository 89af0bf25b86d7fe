//! What the specification asks of a conversation beyond the shape of its messages (client, "Sampling":
//! "Message Content Constraints" and "Model Preferences").

use super::{CreateMessageParams, IncludeContext, SamplingContent, SamplingMessage};
use crate::content::Role;
use crate::content::validate::{check_base64, check_media_type};

impl CreateMessageParams {
    /// Checks what the types do not: tool uses and their results match, and priorities are from 0 to 1.
    ///
    /// # Errors
    ///
    /// What is wrong, and where.
    pub fn check(&self) -> Result<(), String> {
        let preferences = self.model_preferences.iter();
        let priorities = preferences.flat_map(|p| {
            [
                ("costPriority", p.cost_priority),
                ("speedPriority", p.speed_priority),
                ("intelligencePriority", p.intelligence_priority),
            ]
        });
        for (name, priority) in priorities {
            if priority.is_some_and(|priority| !(0.0..=1.0).contains(&priority)) {
                return Err(format!("{name} is not from 0 to 1"));
            }
        }
        let mut before: &[SamplingContent] = &[];
        for (at, message) in self.messages.iter().enumerate() {
            for block in message.content.blocks() {
                if let SamplingContent::Image(media) | SamplingContent::Audio(media) = block {
                    check_base64(&media.data)
                        .and_then(|()| check_media_type(&media.mime_type))
                        .map_err(|why| format!("message {at}: {why}"))?;
                }
            }
            follows(before, message).map_err(|why| format!("message {at} {why}"))?;
            before = message.content.blocks();
        }
        if uses(before).next().is_some() {
            return Err("the last message wants to use tools, and no results follow".to_owned());
        }
        Ok(())
    }

    /// Whether the client needs the `sampling.context` capability for this.
    pub fn uses_context(&self) -> bool {
        !matches!(self.include_context, None | Some(IncludeContext::None))
    }
}

/// Whether `message` may follow one with these blocks.
fn follows(before: &[SamplingContent], message: &SamplingMessage) -> Result<(), &'static str> {
    let blocks = message.content.blocks();
    let results: Vec<_> = results(blocks).collect();
    if uses(blocks).next().is_some() && message.role != Role::Assistant {
        return Err("uses tools, but is not the assistant's");
    }
    if !results.is_empty() && (message.role != Role::User || results.len() < blocks.len()) {
        return Err("has tool results, so it must be the user's and hold nothing else");
    }
    if uses(before).any(|id| !results.contains(&id)) {
        return Err("must hold the results of all tools that the message before it uses");
    }
    let matches = |id: &&str| uses(before).filter(|used| used == id).count() == 1;
    if results.len() != uses(before).count() || !results.iter().all(matches) {
        return Err("holds results of tools that the message before it does not use");
    }
    Ok(())
}

fn uses(blocks: &[SamplingContent]) -> impl Iterator<Item = &str> {
    blocks.iter().filter_map(|block| match block {
        SamplingContent::ToolUse(tool) => Some(tool.id.as_str()),
        _ => None,
    })
}

fn results(blocks: &[SamplingContent]) -> impl Iterator<Item = &str> {
    blocks.iter().filter_map(|block| match block {
        SamplingContent::ToolResult(result) => Some(result.tool_use_id.as_str()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(messages: &Value) -> Result<(), String> {
        let params = json!({ "messages": messages, "maxTokens": 5 });
        serde_json::from_value::<CreateMessageParams>(params).unwrap().check()
    }

    #[test]
    fn tool_uses_and_results_have_to_match() {
        let text = || json!({ "type": "text", "text": "x" });
        let usage = |id: &str| json!({ "type": "tool_use", "id": id, "name": "t", "input": {} });
        let result = |id: &str| json!({ "type": "tool_result", "toolUseId": id, "content": [] });
        let media =
            |data: &str, mime: &str| json!({ "type": "image", "data": data, "mimeType": mime });
        let user = |content: &[Value]| json!({ "role": "user", "content": content });
        let model = |content: &[Value]| json!({ "role": "assistant", "content": content });
        let ask = user(&[text()]);
        for fine in [
            json!([ask]),
            json!([ask, model(&[text()]), ask]),
            json!([ask, model(&[usage("1"), text()]), user(&[result("1")]), ask]),
            json!([ask, model(&[usage("1"), usage("2")]), user(&[result("2"), result("1")])]),
        ] {
            assert_eq!(check(&fine), Ok(()), "{fine}");
        }
        let both = model(&[usage("1"), usage("2")]);
        for (wrong, part) in [
            (json!([user(&[usage("1")]), user(&[result("1")])]), "message 0 uses tools"),
            (json!([ask, model(&[usage("1")]), user(&[result("1"), text()])]), "nothing else"),
            (json!([ask, model(&[usage("1")]), model(&[result("1")])]), "must be the user's"),
            (json!([ask, model(&[usage("1")]), ask]), "the results of all"),
            (json!([ask, both, user(&[result("1")])]), "the results of all"),
            (json!([ask, model(&[usage("1")]), user(&[result("1"), result("2")])]), "does not use"),
            (json!([ask, model(&[usage("1")]), user(&[result("1"), result("1")])]), "does not use"),
            (json!([user(&[result("1")])]), "does not use"),
            (json!([user(&[media("no base64", "image/png")])]), "base64"),
            (json!([user(&[media("AAAA", "png")])]), "media type"),
            (json!([ask, model(&[usage("1")])]), "no results follow"),
        ] {
            let why = check(&wrong).unwrap_err();
            assert!(why.contains(part), "{wrong}: {why}");
        }
    }

    #[test]
    fn priorities_are_from_0_to_1() {
        for (priority, fits) in [(0.0, true), (1.0, true), (-0.1, false), (1.1, false)] {
            for name in ["costPriority", "speedPriority", "intelligencePriority"] {
                let params = json!({ "messages": [], "maxTokens": 5, "modelPreferences": { name: priority } });
                let params: CreateMessageParams = serde_json::from_value(params).unwrap();
                assert_eq!(params.check().is_ok(), fits, "{name} {priority}");
            }
        }
        let mut params = CreateMessageParams::user("x", 5);
        params.model_preferences = Some(super::super::ModelPreferences {
            cost_priority: Some(f64::NAN),
            ..Default::default()
        });
        assert!(params.check().is_err());
    }
}
