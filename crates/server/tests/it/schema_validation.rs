//! Validation of arguments and results against the schemas that a tool publishes.

use mrtr_server::{Context, Json, Server, Tool, ToolOutput};
use mrtr_testkit::Replicas;
use serde_json::{Value, json};

use crate::support::{Counter, call_tool, fleet};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Party {
    #[schemars(range(min = 1, max = 12))]
    people: u8,
    #[schemars(length(max = 5), regex(pattern = "^[A-Z]"))]
    name: String,
    /// A number with the bounds of its type.
    table: Option<u16>,
}

fn object(schema: Value) -> mrtr_schema::Object {
    let Value::Object(schema) = schema else { unreachable!() };
    schema
}

#[tokio::test]
async fn arguments_must_match_the_schema_beyond_the_type() {
    let ran = Counter::default();
    let counter = ran.clone();
    let fleet = fleet(move || {
        let counter = counter.clone();
        Tool::new("t", "", move |_: Context, party: Party| {
            counter.increment();
            let text = format!("{} {} {:?}", party.people, party.name, party.table);
            std::future::ready(Ok::<_, mrtr_server::Error>(text))
        })
    });
    let fine = call_tool(&fleet, "t", json!({ "people": 2, "name": "Ada" }), json!({})).await;
    assert_eq!(fine["content"][0]["text"], "2 Ada None");
    for (arguments, part) in [
        (json!({ "people": 0, "name": "Ada" }), "/people"),
        (json!({ "people": 13, "name": "Ada" }), "/people"),
        (json!({ "people": 2, "name": "Adalbert" }), "/name"),
        (json!({ "people": 2, "name": "ada" }), "/name"),
        (json!({ "people": 2, "name": "Ada", "table": 70_000 }), "table"),
    ] {
        let refused = call_tool(&fleet, "t", arguments, json!({})).await;
        let text = refused["content"][0]["text"].as_str().unwrap();
        assert!(refused["isError"] == true && text.contains(part), "{refused}");
    }
    assert_eq!(ran.get(), 1, "the handler must see valid arguments only");
}

/// A bound that the author states applies even if it equals the bound of an integer type.
#[tokio::test]
async fn bounds_and_values_of_the_author_apply() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Amount {
        #[schemars(range(min = 0, max = 255))]
        n: i32,
    }
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Letter {
        #[schemars(extend("enum" = ["a", "b"]))]
        s: String,
    }
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Consent {
        #[schemars(extend("const" = true))]
        agreed: bool,
    }
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Letters {
        #[schemars(extend("items" = { "type": "string", "enum": ["a", "b"] }))]
        all: Vec<String>,
    }
    let echo = |text: String| std::future::ready(Ok::<_, mrtr_server::Error>(text));
    let numbers =
        fleet(move || Tool::new("t", "", move |Amount { n }: Amount| echo(n.to_string())));
    let letters = fleet(move || Tool::new("t", "", move |Letter { s }: Letter| echo(s)));
    let consents = fleet(move || {
        Tool::new("t", "", move |Consent { agreed }: Consent| echo(agreed.to_string()))
    });
    let lists =
        fleet(move || Tool::new("t", "", move |Letters { all }: Letters| echo(all.concat())));
    for (fleet, arguments, is_valid) in [
        (&lists, json!({ "all": ["a", "b"] }), true),
        (&lists, json!({ "all": ["a", "z"] }), false),
        (&numbers, json!({ "n": 255 }), true),
        (&numbers, json!({ "n": -5 }), false),
        (&numbers, json!({ "n": 300 }), false),
        (&letters, json!({ "s": "b" }), true),
        (&letters, json!({ "s": "z" }), false),
        (&consents, json!({ "agreed": true }), true),
        (&consents, json!({ "agreed": false }), false),
    ] {
        let result = call_tool(fleet, "t", arguments.clone(), json!({})).await;
        assert_eq!(result.get("isError").is_none(), is_valid, "{arguments}: {result}");
    }
}

/// In JSON Schema, `2.0` is an integer. Clients in other languages write it.
#[tokio::test]
async fn whole_numbers_may_be_written_as_floats() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Numbers {
        n: u32,
        all: Vec<i64>,
        share: f64,
    }
    let fleet = fleet(|| {
        Tool::new("t", "", async |Numbers { n, all, share }: Numbers| {
            format!("{n} {all:?} {share}")
        })
    });
    let call = async |arguments| call_tool(&fleet, "t", arguments, json!({})).await;
    let fits = call(json!({ "n": 42.0, "all": [1.0, -2], "share": 2.5 })).await;
    assert_eq!(fits["content"][0]["text"], "42 [1, -2] 2.5");
    for n in [json!(4.5), json!(-1.0), json!(1e300)] {
        let refused = call(json!({ "n": n, "all": [], "share": 1 })).await;
        assert_eq!(refused["isError"], true, "{refused}");
    }
}

/// Serialization writes NaN and infinite numbers as `null`.
#[tokio::test]
async fn non_finite_numbers_are_not_sent() {
    #[derive(serde::Serialize, schemars::JsonSchema)]
    struct Share {
        share: f64,
    }
    for (share, is_valid) in [(0.5, true), (f64::NAN, false), (f64::INFINITY, false)] {
        let fleet = fleet(move || {
            let share = move || std::future::ready(Json(Share { share }));
            Tool::new("t", "", share)
        });
        let result = call_tool(&fleet, "t", json!({}), json!({})).await;
        assert_eq!(result.get("error").is_none(), is_valid, "{result}");
    }
}

#[tokio::test]
async fn custom_input_schema_applies_in_addition_to_the_type() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string", "enum": ["x", "y"] } },
        "required": ["a"], "oneOf": [{ "required": ["a"] }, { "required": ["b"] }] });
    let fleet = fleet(|| {
        Tool::new(
            "t",
            "",
            async |_: Context, any: serde_json::Map<String, Value>| -> mrtr_server::Result<_> {
                Ok(format!("{}", any.len()))
            },
        )
        .input_schema(object(schema.clone()))
    });
    assert_eq!(
        call_tool(&fleet, "t", json!({ "a": "x" }), json!({})).await["content"][0]["text"],
        "1"
    );
    for arguments in [json!({}), json!({ "a": "z" }), json!({ "a": "x", "b": 1 })] {
        let refused = call_tool(&fleet, "t", arguments, json!({})).await;
        assert_eq!(refused["isError"], true, "{refused}");
    }
}

#[tokio::test]
async fn output_that_violates_its_schema_is_not_sent() {
    let output = |value: Option<Value>| {
        let tool = move || {
            let value = value.clone();
            let schema = json!({ "type": "object", "properties": { "n": { "minimum": 5 } }, "required": ["n"] });
            Tool::new("t", "", move |_: Context| {
                std::future::ready(Ok::<_, mrtr_server::Error>(match value.clone() {
                    Some(value) => ToolOutput::structured(value, []),
                    None => "text alone".into(),
                }))
            })
            .output_schema(object(schema))
        };
        fleet(tool)
    };
    let call = async |fleet: Replicas| call_tool(&fleet, "t", json!({}), json!({})).await;
    let fits = call(output(Some(json!({ "n": 5 })))).await;
    assert_eq!(fits["structuredContent"], json!({ "n": 5 }));
    for value in [Some(json!({ "n": 4 })), Some(json!({})), Some(json!([])), None] {
        let refused = call(output(value.clone())).await;
        assert_eq!(refused["error"]["code"], -32603, "{value:?}: {refused}");
    }
}

#[test]
fn build_rejects_invalid_json_schemas() {
    let tool = || Tool::new("t", "", async |_: Context| "x");
    for schema in [
        json!({ "type": "object", "properties": 5 }),
        json!({ "type": "object", "properties": { "a": { "type": "objekt" } } }),
        json!({ "type": "object", "properties": { "a": { "pattern": "(" } } }),
        json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/none" } } }),
    ] {
        let input = Server::builder("s", "1")
            .require_principal()
            .ephemeral_key()
            .tool(tool().input_schema(object(schema.clone())));
        let output = Server::builder("s", "1")
            .require_principal()
            .ephemeral_key()
            .tool(tool().output_schema(object(schema)));
        for builder in [input, output] {
            let error = builder.build().unwrap_err().to_string();
            assert!(error.contains("invalid JSON Schema"), "{error}");
        }
    }
}

/// A mistake of the author, which tests find: they run in debug builds.
#[cfg(debug_assertions)]
#[tokio::test]
async fn derived_schema_that_contradicts_a_result_is_an_error_in_debug_builds() {
    #[derive(serde::Serialize, schemars::JsonSchema)]
    struct Count {
        #[schemars(required)]
        n: Option<i64>,
    }
    let fleet = fleet(|| {
        Tool::new("t", "", async |cx: Context| {
            let n = cx.parts().wants_progress().then_some(1);
            Ok::<_, mrtr_server::Error>(Json(Count { n }))
        })
    });
    let refused = call_tool(&fleet, "t", json!({}), json!({})).await;
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
}
