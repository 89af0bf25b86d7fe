//! The manifest of a bundle.

use mrtr::apps::ToolUiMeta;
use mrtr::schema::Object;
use mrtr::schema::tool::Tool;
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::options;
use crate::server_info::ServerInfo;

/// The version of the format: the newest that is not experimental.
const VERSION: &str = "0.3";

/// What a server is and has.
pub(super) struct Facts {
    pub(super) info: ServerInfo,
    pub(super) tools: Vec<Tool>,
    pub(super) tools_change: bool,
    pub(super) has_prompts: bool,
}

/// Returns the manifest of a bundle with the program `binary`.
pub(super) fn of(
    options: &options::Bundle,
    facts: &Facts,
    binary: &str,
    args: &[String],
) -> Result<Value> {
    let ServerInfo { name, version, title, description } = &facts.info;
    if name.is_empty() || version.is_empty() {
        return Err(Failure::usage("the server reports no name, or no version"));
    }
    let description = options.description.as_ref().or(description.as_ref()).ok_or_else(|| {
        Failure::usage("the server has no description: add one to its info, or use --description")
    })?;
    let (user_config, env) = user_config(&options.user_config)?;
    let program = format!("server/{binary}");
    let mut manifest = Object::new();
    let mut set = |key: &str, value: Value| drop(manifest.insert(key.to_owned(), value));
    set("manifest_version", VERSION.into());
    set("name", name.as_str().into());
    if let Some(title) = title {
        set("display_name", title.as_str().into());
    }
    set("version", version.as_str().into());
    set("description", description.as_str().into());
    set("author", json!({ "name": options.author }));
    let command = format!("${{__dirname}}/{program}");
    let config = json!({ "command": command, "args": args, "env": env });
    set("server", json!({ "type": "binary", "entry_point": program, "mcp_config": config }));
    // App-only tools (MCP Apps) are not for people, either.
    let is_shown = |tool: &&Tool| ToolUiMeta::of(tool).is_ok_and(|ui| ui.is_for_model());
    set("tools", facts.tools.iter().filter(is_shown).map(tool).collect());
    if facts.tools_change {
        set("tools_generated", true.into());
    }
    if facts.has_prompts {
        // The format describes prompts by fixed texts, which those of a server are not.
        set("prompts_generated", true.into());
    }
    set("compatibility", json!({ "platforms": [platform()?] }));
    if !user_config.is_empty() {
        set("user_config", user_config.into());
    }
    Ok(Value::Object(manifest))
}

fn tool(tool: &Tool) -> Value {
    match &tool.description {
        Some(description) => json!({ "name": tool.name, "description": description }),
        None => json!({ "name": tool.name }),
    }
}

/// Returns what a host asks its user, and the environment that it makes of the answers. Each option
/// is `NAME=DESCRIPTION`.
fn user_config(options: &[String]) -> Result<(Object, Object)> {
    let (mut asked, mut env) = (Object::new(), Object::new());
    for option in options {
        let Some((name, description)) = option.split_once('=').filter(|(name, text)| {
            !name.is_empty() && !name.contains(['}', '\0']) && !text.is_empty()
        }) else {
            return Err(Failure::usage(format!(
                "--user-config {option:?} is not NAME=DESCRIPTION"
            )));
        };
        // A host keeps it like a password.
        let question = json!({
            "type": "string", "title": name, "description": description, "required": true,
            "sensitive": true,
        });
        asked.insert(name.to_lowercase(), question);
        let value = format!("${{user_config.{}}}", name.to_lowercase());
        if env.insert(name.to_owned(), value.into()).is_some() {
            return Err(Failure::usage(format!("--user-config {name} is given twice")));
        }
    }
    if asked.len() < env.len() {
        return Err(Failure::usage("two names of --user-config differ in case alone"));
    }
    Ok((asked, env))
}

/// Returns the name of this operating system in the format, since the program is for it.
fn platform() -> Result<&'static str> {
    match std::env::consts::OS {
        "linux" => Ok("linux"),
        "macos" => Ok("darwin"),
        "windows" => Ok("win32"),
        other => Err(Failure::usage(format!("there are no bundles for {other}"))),
    }
}
