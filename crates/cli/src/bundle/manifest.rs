//! The manifest of a bundle.

use mrtr::apps::ToolUiMeta;
use mrtr::schema::Object;
use mrtr::schema::capabilities::Implementation;
use mrtr::schema::tool::Tool;
use serde_json::{Value, json};
use url::Url;

use crate::failure::{Failure, Result};
use crate::{options, output};

/// The version of the format: the newest that is not experimental.
const VERSION: &str = "0.3";

/// What a server is and has.
pub(super) struct Facts {
    pub(super) info: Implementation,
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
    let Implementation { name, version, title, description, website_url, .. } = &facts.info;
    let is_word = |text: &str, more: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    if !is_word(name, "._-") {
        return Err(Failure::usage(format!(
            "the name of the server, {name:?}, has other characters than A-Z a-z 0-9 . _ -"
        )));
    }
    if !is_word(version, ".-+") || !version.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(Failure::usage(format!(
            "the version of the server, {version:?}, is no semantic version"
        )));
    }
    let description = options.description.as_ref().or(description.as_ref());
    let description = description.filter(|text| !text.is_empty()).ok_or_else(|| {
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
    if options.author.is_empty() {
        return Err(Failure::usage("--author is empty"));
    }
    set("author", json!({ "name": options.author }));
    if let Some(url) = website_url {
        match Url::parse(url) {
            Ok(url) => set("homepage", url.as_str().into()),
            Err(_) => {
                output::note(&format!("left out: the server's website URL {url:?} is not a URL"));
            }
        }
    }
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
    let is_name = |name: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
        !name.is_empty()
            && name.chars().all(is_allowed)
            && !name.starts_with(|c: char| c.is_ascii_digit())
    };
    let (mut asked, mut env) = (Object::new(), Object::new());
    for option in options {
        let parts = option.split_once('=');
        let Some((name, description)) =
            parts.filter(|(name, text)| is_name(name) && !text.is_empty())
        else {
            return Err(Failure::usage(format!(
                "--user-config {option:?} is not NAME=DESCRIPTION, with a name of A-Z a-z 0-9 _"
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

#[cfg(test)]
mod tests {
    use mrtr::apps::ToolVisibility;

    use super::*;

    fn options(description: Option<&str>) -> options::Bundle {
        options::Bundle {
            file: "x.mcpb".into(),
            author: "Ada".to_owned(),
            description: description.map(str::to_owned),
            user_config: Vec::new(),
            command: Vec::new(),
        }
    }

    fn facts(name: &str, version: &str) -> Facts {
        let mut app = Tool::new("refresh", Object::new());
        let ui = ToolUiMeta::default().with_visibility([ToolVisibility::App]);
        ui.write_to(app.meta.get_or_insert_default());
        let info = Implementation::new(name, version)
            .with_title("Orders")
            .with_description("Lists orders")
            .with_website_url("https://orders.example/");
        let listed = Tool::new("list", Object::new()).with_description("Lists");
        let tools = vec![listed, app, Tool::new("other", Object::new())];
        Facts { info, tools, tools_change: false, has_prompts: false }
    }

    #[test]
    fn manifest_has_what_the_server_reports() {
        let made = of(&options(None), &facts("orders", "1.2.0"), "orders", &[]).ok().unwrap();
        for (key, expected) in [
            ("name", json!("orders")),
            ("display_name", json!("Orders")),
            ("version", json!("1.2.0")),
            ("description", json!("Lists orders")),
            ("homepage", json!("https://orders.example/")),
            // Not the app-only tool.
            ("tools", json!([{ "name": "list", "description": "Lists" }, { "name": "other" }])),
            ("tools_generated", Value::Null),
            ("user_config", Value::Null),
        ] {
            assert_eq!(made[key], expected, "{key}");
        }
        let made = of(&options(Some("Mine")), &facts("orders", "1"), "orders", &[]).ok().unwrap();
        assert_eq!(made["description"], "Mine");
    }

    #[test]
    fn names_and_versions_are_checked() {
        for (name, version) in [("", "1"), ("my server", "1"), ("a", ""), ("a", "v1"), ("a", "1 2")]
        {
            assert!(
                of(&options(None), &facts(name, version), "x", &[]).is_err(),
                "{name} {version}"
            );
        }
        for name in ["", "1A", "A B", "A+", "A}"] {
            assert!(user_config(&[format!("{name}=x")]).is_err(), "{name}");
        }
    }
}
