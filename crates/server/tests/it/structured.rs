//! Structured output.

use mrtr_client::{CallError, Client};
use mrtr_server::{Context, Json, Result, Tool};
use mrtr_testkit::{Replicas, TestClock};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::support::{Text, client, replica};

#[derive(Serialize, JsonSchema)]
struct Table {
    people: u8,
    place: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// A value that does not serialize.
#[derive(JsonSchema)]
struct Secretive;

impl Serialize for Secretive {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("the password is hunter2"))
    }
}

fn booking() -> Client<Replicas> {
    let clock = TestClock::default();
    let table = async |cx: Context| -> Result<_> {
        let place = cx.elicit::<Text>("place", "Where?").await?.text;
        Ok(Json(Table { people: 2, place, note: None }))
    };
    let server = replica(&clock)
        .allow_anonymous()
        .tool(Tool::new("table", "", table))
        .tool(Tool::new("nothing", "", async |_: Context| Json(Value::Null)))
        .tool(Tool::new("broken", "", async |_: Context| Json(Secretive)))
        .build()
        .unwrap();
    client(Replicas::new([server])).0.build()
}

#[tokio::test]
async fn json_output_has_a_schema_and_a_text_form() {
    let client = booking();
    let tools = client.list_tools().await.unwrap();
    let tool = tools.iter().find(|tool| tool.name == "table").unwrap();
    let schema = tool.output_schema.as_ref().unwrap();
    assert_eq!(schema["properties"]["people"]["type"], json!("integer"));
    assert_eq!(
        schema["required"],
        json!(["people", "place"]),
        "fields that may be absent are not required"
    );

    let result = client.call_tool("table", json!({})).await.unwrap();
    let value = json!({ "people": 2, "place": "place" });
    assert_eq!(result.structured_content, Some(value.clone()));
    assert_eq!(serde_json::from_str::<Value>(&result.text()).unwrap(), value);
}

#[tokio::test]
async fn null_is_valid_structured_content() {
    let result = booking().call_tool("nothing", json!({})).await.unwrap();
    assert_eq!(result.structured_content, Some(Value::Null));
    assert_eq!(result.text(), "null");
}

#[tokio::test]
async fn unserializable_output_fails_the_tool_without_details() {
    let result: Result<_, CallError> = booking().call_tool("broken", json!({})).await;
    let result = result.unwrap();
    assert!(result.is_error);
    assert_eq!(result.structured_content, None);
    assert!(!result.text().contains("hunter2"), "{}", result.text());
}
