//! The configuration files of hosts, and how each writes a server.

use std::env;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::failure::{Failure, Result};
use crate::options::{Host, Install};

/// Returns the file that the host reads.
pub(super) fn file(host: Host) -> Result<PathBuf> {
    let home = || {
        let home = env::home_dir().filter(|home| home.is_absolute());
        home.ok_or_else(|| Failure::usage("the home directory is unknown: use --file"))
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
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if options.name.is_empty() || !options.name.chars().all(is_allowed) {
        return Err(Failure::usage("a name consists of letters, digits, `-` and `_`"));
    }
    let section = if host == Host::Vscode { "servers" } else { "mcpServers" };
    let mut entry = Map::new();
    let mut set = |name: &str, value: Value| drop(entry.insert(name.to_owned(), value));
    let has_type = [Host::ClaudeCode, Host::Vscode].contains(&host);
    if let Some(url) = &options.url {
        if host == Host::ClaudeDesktop {
            return Err(Failure::usage(
                "the configuration file of Claude Desktop takes commands only: add the URL as a connector in its settings",
            ));
        }
        mrtr::connect(url).map(drop).map_err(Failure::usage)?;
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
/// separator are searched for by the host, which also replaces `${…}`.
fn program_path(program: &str) -> Result<String> {
    if !program.contains(std::path::is_separator) || program.contains("${") {
        return Ok(program.to_owned());
    }
    if !Path::new(program).is_file() {
        return Err(Failure::usage(format!("{program} is not a file")));
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
