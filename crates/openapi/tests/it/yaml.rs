//! Documents in YAML.

use mrtr_openapi::{OpenApi, OpenApiTools};
use serde_json::json;

use super::{Api, agreed, client, openapi};

const DOCUMENT: &str = "
# Comments are allowed.
openapi: 3.1.0
info: { title: Shop, version: 1.0.0 }
paths:
  /orders/{id}:
    get:
      operationId: order
      description: >
        Returns an order.
      parameters:
        - { name: id, in: path, required: true, schema: &id { type: string, maxLength: 9 } }
        - name: country
          in: query
          schema: { type: string, enum: [NO, SE, 007, 1_000], default: NO }
        - { name: other, in: query, schema: *id }
      responses:
        200: { description: OK }
";

#[tokio::test]
async fn yaml_becomes_tools_as_json_does() {
    let api = Api::default();
    let OpenApiTools { tools, skipped, .. } = openapi(DOCUMENT, &api).build();
    assert!(skipped.is_empty(), "{skipped:?}");
    let (client, _) = client(tools, agreed());
    let tool = client.list_tools().await.unwrap().remove(0);
    assert_eq!(tool.description.as_deref(), Some("Returns an order."));
    let id = json!({ "type": "string", "maxLength": 9 });
    let country =
        json!({ "type": "string", "enum": ["NO", "SE", "007", "1_000"], "default": "NO" });
    let expected = json!({ "id": id, "country": country, "other": id });
    assert_eq!(tool.input_schema["properties"], expected);
    client.call_tool("order", json!({ "id": "a", "country": "NO" })).await.unwrap();
    assert_eq!(api.lines(), ["GET https://api.example/v1/orders/a?country=NO"]);
}

#[test]
fn invalid_yaml_is_refused_with_the_place() {
    for (text, why) in [
        ("openapi: 3.1.0\npaths: [", "at line 2, column 8"),
        ("openapi: 3.1.0\nopenapi: 3.0.0", "duplicate mapping key"),
        ("openapi: 3.1.0\nx: { \"\\x24serde_json::private::RawValue\": '1' }", "reserved key"),
        ("a: 1\n---\nb: 2", "multiple YAML documents"),
        ("openapi: &a [*a]", "recursive references"),
        ("{\"openapi\": \"3.1.0\"", "is not JSON"),
        ("openapi: 3.1", "no string"),
        ("", "no string"),
        ("x: y: z", "cannot read the OpenAPI document as YAML"),
    ] {
        let error = OpenApi::new(text, "https://api.example", Api::default()).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// Each line repeats the one before nine times.
#[test]
fn aliases_do_not_grow_without_bound() {
    let lines = (1..20).map(|n| {
        let aliases = vec![format!("*a{}", n - 1); 9].join(", ");
        format!("a{n}: &a{n} [{aliases}]\n")
    });
    let document: String =
        std::iter::once("a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned()).chain(lines).collect();
    let error = OpenApi::new(&document, "https://api.example", Api::default()).unwrap_err();
    assert!(error.to_string().contains("alias replay limit exceeded"), "{error}");
}

/// Shared responses are what anchors are for.
#[test]
fn one_anchor_may_have_many_aliases() {
    let path = |n| format!("  /p{n}: {{ get: {{ responses: {{ 400: *error }} }} }}");
    let paths = (0..500).map(path).collect::<Vec<_>>().join("\n");
    let document = format!(
        "openapi: 3.1.0\nx-error: &error {{ description: Error, x-code: 1e400 }}\npaths:\n{paths}"
    );
    assert_eq!(openapi(&document, &Api::default()).build().tools.len(), 500);
}

/// The stack is that of a thread by default.
#[test]
fn nesting_is_limited_by_less_than_the_stack() {
    let read = |depth: usize| {
        let document = format!("openapi: 3.1.0\nx: {}{}", "{ a: ".repeat(depth), "}".repeat(depth));
        let read = move || OpenApi::new(&document, "https://api.example", Api::default()).map(drop);
        let thread = std::thread::Builder::new().stack_size(2 << 20);
        thread.spawn(read).unwrap().join().unwrap().map_err(|error| error.to_string())
    };
    read(63).unwrap();
    assert!(read(64).unwrap_err().contains("Depth"));
    assert!(read(100_000).is_err());
}
