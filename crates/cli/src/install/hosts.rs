//! The configuration files of hosts, and how each writes a server.

use std::env;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::failure::{Failure, Result};
use crate::options::{Host, Install};

/// Returns the file that the host reads.
pub(super) fn file(host: Host) -> Result<PathBuf> {
    let home = || {
        env::home_dir().ok_or_else(|| Failure::usage("the home directory is unknown: use --file"))
    };
    Ok(match host {
        Host::ClaudeCode => PathBuf::from(".mcp.json"),
        Host::Vscode => PathBuf::from(".vscode/mcp.json"),
        Host::Cursor => home()?.join(".cursor/mcp.json"),
        Host::Gemini => home()?.join(".gemini/settings.json"),
        Host::ClaudeDesktop => {
            let folder = if cfg!(target_os = "macos") {
                home()?.join("Library/Application Support")
            } else {
                let variable = if cfg!(windows) { "APPDATA" } else { "XDG_CONFIG_HOME" };
                match env::var_os(variable).filter(|folder| Path::new(folder).is_absolute()) {
                    Some(folder) => folder.into(),
                    None => home()?.join(".config"),
                }
            };
            folder.join("Claude/claude_desktop_config.json")
        }
    })
}

/// Returns the member of the configuration that has the servers, and the server's entry there.
pub(super) fn entry(options: &Install) -> Result<(&'static str, Value)> {
    let host = options.host;
    let section = if host == Host::Vscode { "servers" } else { "mcpServers" };
    let mut entry = Map::new();
    let mut set = |name: &str, value: Value| drop(entry.insert(name.to_owned(), value));
    let has_type = [Host::ClaudeCode, Host::Vscode].contains(&host);
    if let Some(url) = &options.url {
        if host == Host::ClaudeDesktop {
            return Err(Failure::usage(
                "the configuration of Claude Desktop has commands only: add a URL as a connector, in its settings",
            ));
        }
        if !url.starts_with("https://") && !url.starts_with("http://") {
            return Err(Failure::usage(format!("{url:?} is not an http or https URL")));
        }
        if has_type {
            set("type", "http".into());
        }
        set(if host == Host::Gemini { "httpUrl" } else { "url" }, url.as_str().into());
        return Ok((section, entry.into()));
    }
    let Some((program, arguments)) = options.command.split_first() else {
        return Err(Failure::usage("a URL or a command is missing"));
    };
    if has_type {
        set("type", "stdio".into());
    }
    set("command", program_path(program)?.into());
    set("args", json!(arguments));
    if !options.env.is_empty() {
        set("env", variables(&options.env)?.into());
    }
    Ok((section, entry.into()))
}

/// Makes the path of a program absolute: hosts start it in another folder. Names without a
/// separator are searched for by the host.
fn program_path(program: &str) -> Result<String> {
    let is_path = program.contains(std::path::is_separator);
    if !is_path {
        return Ok(program.to_owned());
    }
    if !Path::new(program).is_file() {
        return Err(Failure::usage(format!("there is no program {program}")));
    }
    let path = std::path::absolute(program).map_err(Failure::usage)?;
    let text = path.to_str().map(ToOwned::to_owned);
    text.ok_or_else(|| Failure::usage(format!("the path {} is not UTF-8", path.display())))
}

fn variables(given: &[String]) -> Result<Map<String, Value>> {
    let mut variables = Map::new();
    for variable in given {
        let pair = variable.split_once('=').filter(|(name, _)| !name.is_empty());
        let Some((name, value)) = pair else {
            return Err(Failure::usage("--env takes NAME=VALUE"));
        };
        variables.insert(name.to_owned(), value.into());
    }
    Ok(variables)
}
