//! Results and errors of the current revision, as legacy clients expect them.

use mrtr_schema::content::ContentBlock;
use mrtr_schema::json::{ObjectWriter, read_pairs};
use mrtr_schema::jsonrpc::{ErrorObject, code};
use mrtr_schema::meta::key;
use mrtr_schema::result::ResultType;
use mrtr_schema::{RawJson, method};
use serde_json::value::{RawValue, to_raw_value};

use crate::LegacyVersion;
use crate::code::RESOURCE_NOT_FOUND;

type Pairs = Vec<(String, Box<RawValue>)>;

/// Reads the members of an object. The values stay as they are written.
fn members(text: &str) -> Result<Pairs, serde_json::Error> {
    read_pairs(&mut serde_json::Deserializer::from_str(text), "an object")
}

fn write(members: Pairs) -> RawJson {
    let length = members.iter().map(|(name, value)| name.len() + value.get().len() + 8).sum();
    let object = members.into_iter().fold(ObjectWriter::with_capacity(length), |object, member| {
        let (name, value) = member;
        object.raw(&name, &RawJson::from(value))
    });
    object.end()
}

/// Returns true if the result asks for input.
pub(crate) fn is_input_required(result: &RawJson) -> bool {
    serde_json::from_str::<&RawValue>(result.as_str())
        .and_then(ResultType::from_result)
        .is_ok_and(|kind| kind == ResultType::InputRequired)
}

/// Removes from a complete result what legacy revisions do not have: the type of the result,
/// caching hints, the server's name, and structured content that is not an object. Where links to
/// resources do not exist, they become text.
///
/// # Errors
///
/// If the result is not a JSON object.
pub(crate) fn legacy_result(
    version: LegacyVersion,
    method: &str,
    result: &RawJson,
) -> Result<RawJson, serde_json::Error> {
    let has_links = version.has_resource_links();
    let mut kept = Pairs::new();
    for (name, value) in members(result.as_str())? {
        match name.as_str() {
            "resultType" | "ttlMs" | "cacheScope" => {}
            "_meta" => {
                let mut meta = members(value.get())?;
                meta.retain(|(name, _)| name != key::SERVER_INFO);
                if !meta.is_empty() {
                    kept.push((name, into_raw(write(meta))?));
                }
            }
            "structuredContent" if !is_object(&value) => {}
            "tools" if method == method::TOOLS_LIST => {
                let tools: Vec<Box<RawValue>> = serde_json::from_str(value.get())?;
                let tools = tools
                    .into_iter()
                    .map(|tool| legacy_tool(&tool))
                    .collect::<Result<Vec<_>, _>>()?;
                kept.push((name, to_raw_value(&tools)?));
            }
            "content" if !has_links => kept.push((name, each(&value, without_link)?)),
            "messages" if !has_links => kept.push((name, each(&value, message_without_link)?)),
            _ => kept.push((name, value)),
        }
    }
    Ok(write(kept))
}

/// Applies a function to the elements of an array.
fn each(
    array: &RawValue,
    change: impl Fn(&RawValue) -> Result<Box<RawValue>, serde_json::Error>,
) -> Result<Box<RawValue>, serde_json::Error> {
    let elements: Vec<&RawValue> = serde_json::from_str(array.get())?;
    let elements = elements.into_iter().map(change).collect::<Result<Vec<_>, _>>()?;
    to_raw_value(&elements)
}

fn message_without_link(message: &RawValue) -> Result<Box<RawValue>, serde_json::Error> {
    let mut message = members(message.get())?;
    for (name, value) in &mut message {
        if name == "content" {
            *value = without_link(value)?;
        }
    }
    into_raw(write(message))
}

/// Replaces a link to a resource by text.
fn without_link(block: &RawValue) -> Result<Box<RawValue>, serde_json::Error> {
    if !block.get().contains("resource_link") {
        return Ok(block.to_owned());
    }
    match serde_json::from_str(block.get()) {
        Ok(ContentBlock::ResourceLink(link)) => {
            to_raw_value(&ContentBlock::text(format!("{}: {}", link.name, link.uri)))
        }
        _ => Ok(block.to_owned()),
    }
}

/// Removes an output schema that does not describe an object: its results have no structured
/// content in legacy revisions.
fn legacy_tool(tool: &RawValue) -> Result<Box<RawValue>, serde_json::Error> {
    let mut tool = members(tool.get())?;
    tool.retain(|(name, value)| name != "outputSchema" || describes_object(value));
    into_raw(write(tool))
}

fn describes_object(schema: &RawValue) -> bool {
    members(schema.get()).is_ok_and(|members| {
        members.iter().any(|(name, value)| name == "type" && value.get() == "\"object\"")
    })
}

fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

fn into_raw(json: RawJson) -> Result<Box<RawValue>, serde_json::Error> {
    RawValue::from_string(json.into())
}

/// What a client gets instead of a question if the server asks none.
pub(super) const NO_QUESTIONS: &str = "This server asks clients of legacy revisions no questions. \
     Use a client of MCP 2026-07-28 for calls that need input";

/// Translates an error: legacy revisions have a code of their own for a missing resource. That a
/// capability is missing may be due to the server.
pub(crate) fn legacy_error(
    method: &str,
    mut error: ErrorObject,
    has_questions: bool,
) -> ErrorObject {
    if error.code == code::MISSING_REQUIRED_CLIENT_CAPABILITY && !has_questions {
        return ErrorObject::internal(NO_QUESTIONS);
    }
    let names_uri = error.data.as_ref().is_some_and(|data| data.get("uri").is_some());
    if method == method::RESOURCES_READ && error.code == code::INVALID_PARAMS && names_uri {
        error.code = RESOURCE_NOT_FOUND;
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn translated(method: &str, result: &Value) -> Value {
        translated_for(LegacyVersion::LATEST, method, result)
    }

    fn translated_for(version: LegacyVersion, method: &str, result: &Value) -> Value {
        let result = legacy_result(version, method, &RawJson::new(result).unwrap()).unwrap();
        serde_json::from_str(result.as_str()).unwrap()
    }

    #[test]
    fn members_of_the_current_revision_are_removed() {
        let result = json!({
            "resultType": "complete",
            "content": [],
            "structuredContent": { "ttlMs": 1 },
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": { key::SERVER_INFO: { "name": "x", "version": "1" }, "com.example/a": 1 },
        });
        assert_eq!(
            translated(method::TOOLS_CALL, &result),
            json!({ "content": [], "structuredContent": { "ttlMs": 1 }, "_meta": { "com.example/a": 1 } })
        );
        let meta = json!({ key::SERVER_INFO: { "name": "x", "version": "1" } });
        let result = json!({ "content": [], "structuredContent": [1], "_meta": meta });
        assert_eq!(translated(method::TOOLS_CALL, &result), json!({ "content": [] }));
    }

    #[test]
    fn output_schemas_describe_objects() {
        let tool =
            |schema: Value| json!({ "name": "a", "inputSchema": {}, "outputSchema": schema });
        let tools = [tool(json!({ "type": "object" })), tool(json!({ "type": "array" }))];
        let result = translated(method::TOOLS_LIST, &json!({ "tools": tools }));
        let has_schema = |at: usize| result["tools"][at].get("outputSchema").is_some();
        assert_eq!((has_schema(0), has_schema(1)), (true, false));
    }

    #[test]
    fn links_are_text_where_they_do_not_exist() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        let link = json!({ "type": "resource_link", "name": "Report", "uri": "file:///report" });
        let as_text = text("Report: file:///report");
        let about = text("about a resource_link");
        let tool = json!({ "content": [link, about] });
        let prompt = json!({ "messages": [{ "role": "user", "content": link }] });
        for (version, expected) in
            [(LegacyVersion::V2025_03_26, &as_text), (LegacyVersion::V2025_06_18, &link)]
        {
            let translated = translated_for(version, method::TOOLS_CALL, &tool);
            assert_eq!(translated["content"], json!([expected, about]), "{version}");
            let translated = translated_for(version, method::PROMPTS_GET, &prompt);
            assert_eq!(translated["messages"][0]["content"], *expected, "{version}");
        }
    }

    #[test]
    fn numbers_keep_their_digits() {
        let text = r#"{"structuredContent":{"account":123456789012345678901234567890}}"#;
        let result = RawJson::from(RawValue::from_string(text.to_owned()).unwrap());
        let translated = legacy_result(LegacyVersion::LATEST, method::TOOLS_CALL, &result);
        assert_eq!(translated.unwrap().as_str(), text);
    }

    #[test]
    fn missing_resource_has_its_legacy_code() {
        let missing = ErrorObject::invalid_params("Resource not found");
        let named = missing.clone().with_data(json!({ "uri": "file:///a" }));
        let code_of = |method, error| legacy_error(method, error, true).code;
        assert_eq!(code_of(method::RESOURCES_READ, named.clone()), RESOURCE_NOT_FOUND);
        assert_eq!(code_of(method::RESOURCES_READ, missing), code::INVALID_PARAMS);
        assert_eq!(code_of(method::TOOLS_CALL, named), code::INVALID_PARAMS);
    }
}
