//! The commands `discover` and `tools`.

use std::process::ExitCode;

use mrtr::schema::tool::Tool;
use mrtr::terminal::{sanitize, sanitize_line};
use serde_json::Value;

use crate::failure::Result;
use crate::options::Server;
use crate::output::{self, bold, dim};

pub(crate) async fn discover(server: &Server, json: bool) -> Result<ExitCode> {
    let found = server.client()?.build().discover().await?;
    if json {
        output::json(&found);
        return Ok(ExitCode::SUCCESS);
    }
    let found = serde_json::to_value(&found).unwrap_or_default();
    let info = found.pointer("/_meta/io.modelcontextprotocol~1serverInfo");
    let info = |name: &str| info.and_then(|info| info.get(name)).and_then(Value::as_str);
    if let Some(name) = info("name") {
        output::line(&format!(
            "{} {}",
            bold(&sanitize_line(name)),
            sanitize_line(info("version").unwrap_or_default())
        ));
    }
    if let Some(instructions) = found.get("instructions").and_then(Value::as_str) {
        output::line(&sanitize(instructions));
    }
    let list = |name: &str| match found.get(name) {
        Some(Value::Array(all)) => {
            all.iter().filter_map(Value::as_str).map(sanitize_line).collect()
        }
        Some(Value::Object(all)) => all.keys().map(|key| sanitize_line(key)).collect(),
        _ => Vec::new(),
    };
    for (label, name) in [("versions", "supportedVersions"), ("capabilities", "capabilities")] {
        output::line(&format!("{} {}", dim(&format!("{label:<12}")), list(name).join(", ")));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn tools(server: &Server, json: bool) -> Result<ExitCode> {
    let tools = server.client()?.build().list_tools().await?;
    if json {
        output::json(&tools);
        return Ok(ExitCode::SUCCESS);
    }
    if tools.is_empty() {
        output::note("The server has no tools.");
    }
    tools.iter().for_each(show_tool);
    Ok(ExitCode::SUCCESS)
}

/// Prints the name, the description and the arguments of a tool.
pub(crate) fn show_tool(tool: &Tool) {
    output::line(&bold(&sanitize_line(&tool.name)));
    if let Some(description) = tool.description.as_deref().filter(|text| !text.is_empty()) {
        output::line(&format!("  {}", sanitize_line(description)));
    }
    let required = tool.input_schema.get("required").and_then(Value::as_array);
    let properties = tool.input_schema.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flatten() {
        let kind = schema.get("type").map_or_else(String::new, |kind| match kind {
            Value::String(kind) => kind.clone(),
            other => other.to_string(),
        });
        let is_required = required.is_some_and(|all| all.iter().any(|one| one == name));
        let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let optional = if is_required { "" } else { ", optional" };
        let details = format!("{kind}{optional}");
        output::line(&format!(
            "  {} {} {}",
            sanitize_line(name),
            dim(&sanitize_line(&details)),
            sanitize_line(description)
        ));
    }
}
