//! Wire messages deserialize into the types of this crate, and serialize back unchanged.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use mrtr_schema::capabilities::{ClientCapabilities, ServerCapabilities};
use mrtr_schema::completion::Completion;
use mrtr_schema::content::{Annotations, ContentBlock};
use mrtr_schema::elicitation::ElicitParams;
use mrtr_schema::input::InputRequest;
use mrtr_schema::jsonrpc::{Message, RequestId, code};
use mrtr_schema::meta::key;
use mrtr_schema::notification::LogLevel;
use mrtr_schema::result::CacheHints;
use mrtr_schema::sampling::{CreateMessageParams, CreateMessageResult};
use mrtr_schema::subscription::SUBSCRIPTION_ID;
use mrtr_schema::tool::{CallToolResult, ListToolsResult};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[expect(clippy::needless_pass_by_value, reason = "reads better where it is called")]
fn assert_round_trip<T: Serialize + DeserializeOwned>(value: Value) {
    let read: T = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), value);
}

#[test]
fn sampling_messages_round_trip() {
    let text = json!({ "type": "text", "text": "Hi" });
    let image = json!({ "type": "image", "data": "AA==", "mimeType": "image/png" });
    let audio = json!({ "type": "audio", "data": "AA==", "mimeType": "audio/wav" });
    let usage = json!({ "type": "tool_use", "id": "1", "name": "t", "input": { "a": 1 },
        "_meta": { "cache": "x" } });
    let result = json!({ "type": "tool_result", "toolUseId": "1", "content": [text],
        "structuredContent": null, "isError": true, "_meta": { "cache": "y" } });
    for content in [
        text.clone(),
        image.clone(),
        audio.clone(),
        json!([text, image, audio]),
        usage.clone(),
        json!([text, usage]),
        result.clone(),
        json!([result, result]),
    ] {
        let message = json!({ "role": "assistant", "content": content });
        assert_round_trip::<CreateMessageParams>(json!({
            "messages": [message], "maxTokens": 5, "systemPrompt": "s", "temperature": 0.5,
            "stopSequences": ["."], "metadata": { "of": "a provider" }, "includeContext": "none",
            "modelPreferences": { "hints": [{ "name": "b" }, { "name": "a" }], "costPriority": 0.5 },
            "tools": [{ "name": "t", "inputSchema": { "type": "object" } }],
            "toolChoice": { "mode": "required" },
        }));
        assert_round_trip::<CreateMessageResult>(json!({
            "role": "assistant", "content": content, "model": "m", "stopReason": "a provider's own",
        }));
    }
    // A list of one block is accepted, and written as a single block.
    let one = json!({ "role": "user", "content": [{ "type": "text", "text": "x" }], "model": "m" });
    let one: CreateMessageResult = serde_json::from_value(one).unwrap();
    assert_eq!(serde_json::to_value(&one).unwrap()["content"]["text"], "x");
    let plain = serde_json::to_value(CreateMessageParams::user("x", 5)).unwrap();
    assert_eq!(plain.get("includeContext"), None);
}

#[test]
fn content_blocks_round_trip_with_annotations() {
    for content in [
        json!({ "type": "resource_link", "uri": "a:1", "name": "one", "mimeType": "text/plain",
            "annotations": { "audience": ["user", "assistant"], "priority": 0.5,
                "lastModified": "2026-07-28T00:00:00Z" } }),
        json!({ "type": "resource", "resource": { "uri": "a:1", "text": "x" } }),
        json!({ "type": "resource", "resource": { "uri": "a:1", "blob": "AA==", "mimeType": "a/b" } }),
    ] {
        assert_round_trip::<ContentBlock>(content);
    }
    let model = json!({ "audience": ["model"] });
    serde_json::from_value::<Annotations>(model).unwrap_err();
}

#[test]
fn form_schema_may_declare_its_dialect() {
    let form = json!({ "mode": "form", "message": "?", "requestedSchema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "properties": { "a": { "type": "string", "format": "email" } } } });
    let ElicitParams::Form(form) = serde_json::from_value(form).unwrap() else { unreachable!() };
    assert!(form.requested_schema.field("a").is_some());
}

#[test]
fn input_request_with_an_unknown_method_is_rejected() {
    for (request, known) in [
        (json!({ "method": "roots/list", "params": {} }), true),
        (json!({ "method": "ping", "params": {} }), false),
        (json!({ "params": {} }), false),
    ] {
        assert_eq!(serde_json::from_value::<InputRequest>(request).is_ok(), known);
    }
}

#[test]
fn absent_members_have_defaults_and_unknown_members_are_ignored() {
    let result: CallToolResult = serde_json::from_value(json!({ "content": [] })).unwrap();
    assert!(!result.is_error && result.structured_content.is_none());
    let null: CallToolResult =
        serde_json::from_value(json!({ "content": [], "structuredContent": null })).unwrap();
    assert_eq!(null.structured_content, Some(Value::Null));
    let little: Completion = serde_json::from_value(json!({ "values": [] })).unwrap();
    assert_eq!((little.total, little.has_more), (None, None));
    let unknown = json!({ "x": { "y": [] }, "elicitation": { "voice": {} } });
    assert!(serde_json::from_value::<ClientCapabilities>(unknown.clone()).unwrap().has_form());
    serde_json::from_value::<ServerCapabilities>(unknown).unwrap();
}

#[test]
fn log_levels_are_those_of_syslog_in_order() {
    let names = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
    let levels = names.map(|name| {
        assert_round_trip::<LogLevel>(json!(name));
        serde_json::from_value::<LogLevel>(json!(name)).unwrap()
    });
    assert!(levels.is_sorted_by(|a, b| a < b));
    serde_json::from_value::<LogLevel>(json!("loud")).unwrap_err();
}

/// `_meta` keys: labels of a reversed domain, a slash, and a name.
#[test]
fn meta_keys_are_well_formed() {
    let letter = |c: char| c.is_ascii_alphabetic();
    let end = |c: char| c.is_ascii_alphanumeric();
    for key in [
        key::PROTOCOL_VERSION,
        key::CLIENT_INFO,
        key::CLIENT_CAPABILITIES,
        key::LOG_LEVEL,
        key::SERVER_INFO,
        SUBSCRIPTION_ID,
    ] {
        let (prefix, name) = key.split_once('/').unwrap();
        assert_eq!(prefix, "io.modelcontextprotocol");
        for label in prefix.split('.') {
            assert!(label.starts_with(letter) && label.ends_with(end), "{key}");
        }
        assert!(name.starts_with(end) && name.ends_with(end), "{key}");
    }
}

#[test]
fn error_codes_are_those_of_the_specification() {
    assert_eq!(
        [
            code::PARSE_ERROR,
            code::INVALID_REQUEST,
            code::METHOD_NOT_FOUND,
            code::INVALID_PARAMS,
            code::INTERNAL_ERROR,
            code::HEADER_MISMATCH,
            code::MISSING_REQUIRED_CLIENT_CAPABILITY,
            code::UNSUPPORTED_PROTOCOL_VERSION,
        ],
        [-32_700, -32_600, -32_601, -32_602, -32_603, -32_020, -32_021, -32_022]
    );
}

#[test]
fn id_is_salvaged_only_from_an_object() {
    for (body, id, notification) in [
        (r#"{"id":5,"method":7}"#, Some(5), false),
        ("[5]", None, false),
        ("5", None, false),
        (r#"{"method":"x","params":[]}"#, None, true),
        (r#"{"method":"x","id":null}"#, None, false),
        ("{", None, false),
    ] {
        let body = body.as_bytes();
        assert!(Message::parse(body).is_err());
        assert_eq!(Message::salvage_id(body), id.map(RequestId::Number));
        assert_eq!(Message::was_notification(body), notification);
    }
}

#[test]
fn ttl_that_is_absent_or_negative_is_zero() {
    for (result, ttl_ms) in [
        ("{}", 0),
        (r#"{"ttlMs":0}"#, 0),
        (r#"{"ttlMs":-5}"#, 0),
        (r#"{"ttlMs":-1e300}"#, 0),
        (r#"{"ttlMs":1500.5}"#, 1500),
        (r#"{"ttlMs":300000}"#, 300_000),
        (r#"{"ttlMs":1e300}"#, u64::MAX),
    ] {
        let list = result.replacen('{', r#"{"tools":[],"#, 1).replace(",}", "}");
        let list: ListToolsResult = serde_json::from_str(&list).unwrap();
        let raw = RawValue::from_string(result.to_owned()).unwrap();
        assert_eq!(CacheHints::from_result(&raw).unwrap().ttl_ms, ttl_ms, "{result}");
        assert_eq!(list.ttl_ms, ttl_ms, "{result}");
    }
}
