//! The client that the official conformance suite runs: `conformance-client URL`. The environment
//! variable `MCP_CONFORMANCE_SCENARIO` names the scenario.

mod login;

use std::error::Error;

use mrtr::client::Transport;
use mrtr::http::{HttpClient, HttpConnection};
use mrtr::schema::form::FieldKind;
use mrtr::{Client, ElicitResult};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let url = std::env::args().next_back().filter(|arg| arg.contains("://"));
    let url = url.ok_or("usage: conformance-client URL")?;
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO")
        .map_err(|_| "MCP_CONFORMANCE_SCENARIO is not set")?;
    let mut http = HttpClient::builder(url);
    if scenario.starts_with("auth/") {
        http = http.credentials(login::client(&scenario)?);
    }
    let client = Client::builder(HttpConnection::new(http.build()?))
        .on_form(async |_, form| {
            // Accepts every form: with the defaults, and `true` for booleans without one.
            let fields = form.requested_schema.fields.iter();
            let yes = fields.filter_map(|field| match field.kind {
                FieldKind::Boolean { default: None, .. } => {
                    Some((field.name.clone(), Value::Bool(true)))
                }
                _ => None,
            });
            let mut content = form.requested_schema.defaults();
            content.extend(yes);
            Ok(ElicitResult::accept(content)?)
        })
        .build();
    run(&client, &scenario).await
}

async fn run<X: Transport>(client: &Client<X>, scenario: &str) -> Result<(), Box<dyn Error>> {
    match scenario {
        "tools_call" => {
            client.list_tools().await?;
            client.call_tool("add_numbers", json!({ "a": 5, "b": 3 })).await?;
        }
        "elicitation-sep1034-client-defaults" => {
            client.list_tools().await?;
            client.call_tool("test_client_elicitation_defaults", json!({})).await?;
        }
        "sse-retry" => {
            client.list_tools().await?;
            client.call_tool("test_reconnection", json!({})).await?;
        }
        "http-standard-headers" => {
            let tools = client.list_tools().await?;
            let resources = client.list_resources().await?;
            let prompts = client.list_prompts().await?;
            let tool = tools.first().ok_or("the server has no tool")?;
            client.call_tool(&tool.name, json!({})).await?;
            let resource = resources.first().ok_or("the server has no resource")?;
            client.read_resource(&resource.uri).await?;
            let prompt = prompts.first().ok_or("the server has no prompt")?;
            client.get_prompt(&prompt.name, json!({})).await?;
        }
        "http-custom-headers" => {
            client.list_tools().await?;
            let context = std::env::var("MCP_CONFORMANCE_CONTEXT")?;
            let context: Value = serde_json::from_str(&context)?;
            for call in context.get("toolCalls").and_then(Value::as_array).into_iter().flatten() {
                let name =
                    call.get("name").and_then(Value::as_str).ok_or("a call without a name")?;
                client.call_tool(name, call.get("arguments")).await?;
            }
        }
        scenario if scenario.starts_with("auth/") => {
            client.list_tools().await?;
            client.call_tool("test-tool", json!({})).await?;
        }
        "http-invalid-tool-headers" => {
            for tool in client.list_tools().await? {
                client.call_tool(&tool.name, json!({ "region": "us-west1" })).await?;
            }
        }
        // Listing the tools is enough. In the second scenario, a `$ref` in one of them points at a
        // URL that must not be fetched.
        "initialize" | "json-schema-ref-no-deref" => {
            client.list_tools().await?;
        }
        "json-schema-2020-12-preservation" => {
            let tools = client.list_tools().await?;
            let tool = tools.iter().find(|tool| tool.name == "json_schema_2020_12_tool");
            let schema = &tool.ok_or("the server has no tool with the expected name")?.input_schema;
            client.call_tool("json_schema_echo", json!({ "schema": schema })).await?;
        }
        "request-metadata" => {
            client.discover().await?;
            client.list_tools().await?;
        }
        "sep-2322-client-request-state" => {
            client.list_tools().await?;
            // An unrelated call runs beside the others, and must not receive their answers.
            let (a, b, c) = tokio::join!(
                client.call_tool("test_mrtr_echo_state", json!({})),
                client.call_tool("test_mrtr_no_state", json!({})),
                client.call_tool("test_mrtr_unrelated", json!({})),
            );
            drop((a?, b?, c?));
            client.call_tool("test_mrtr_unrelated", json!({})).await?;
            client.call_tool("test_mrtr_no_result_type", json!({})).await?;
        }
        other => return Err(format!("unknown scenario {other:?}").into()),
    }
    Ok(())
}
