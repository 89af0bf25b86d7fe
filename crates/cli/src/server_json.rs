//! Prints the `server.json` of a server, for the MCP registry (schema 2025-12-11).

use std::process::ExitCode;

use mrtr::schema::Object;
use serde_json::{Value, json};
use url::Url;

use crate::bundle::Bundle;
use crate::failure::{Failure, Result};
use crate::options::{self, Server};
use crate::output;
use crate::server_info::ServerInfo;

const SCHEMA: &str = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json";

/// The time that the server may take to answer.
const TIMEOUT_SECONDS: u64 = 30;

/// The longest description, title, name and version, in characters.
const MAX_DESCRIPTION: usize = 100;
const MAX_NAME: usize = 200;
const MAX_VERSION: usize = 255;

pub(crate) async fn run(options: &options::ServerJson) -> Result<ExitCode> {
    check_name(&options.name)?;
    let (mut packages, mut remotes) = (Vec::new(), Vec::new());
    let mut info = None;
    if let (Some(file), Some(url)) = (&options.bundle, &options.bundle_url) {
        let bundle = Bundle::read(file)
            .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
        web_url("--bundle-url", url)?;
        packages.push(json!({
            "registryType": "mcpb",
            "identifier": url,
            "fileSha256": bundle.sha256,
            "transport": { "type": "stdio" },
        }));
        info = Some(of_manifest(&bundle.manifest));
    }
    if let Some(url) = &options.url {
        web_url("--url", url)?;
        remotes.push(json!({ "type": "streamable-http", "url": url }));
        if info.is_none() {
            let token_env = options.token_env.clone();
            let server = Server { url: url.clone(), token_env, timeout: TIMEOUT_SECONDS };
            info = Some(ServerInfo::of(&server.client()?.build().discover().await?));
        }
    }
    let info = info.ok_or_else(|| Failure::usage("nothing to publish: use --bundle or --url"))?;
    let mut document = Object::new();
    let mut set = |key: &str, value: Value| drop(document.insert(key.to_owned(), value));
    set("$schema", SCHEMA.into());
    set("name", options.name.as_str().into());
    if let Some(title) = info.title.filter(|title| fits(title, MAX_DESCRIPTION)) {
        set("title", title.into());
    }
    set("description", description(options.description.as_ref().or(info.description.as_ref()))?);
    set("version", version(&info.version)?);
    if let Some(repository) = &options.repository {
        set("repository", json!({ "url": repository, "source": forge(repository)? }));
    }
    for (key, list) in [("packages", packages), ("remotes", remotes)] {
        if !list.is_empty() {
            set(key, list.into());
        }
    }
    output::json(&document);
    Ok(ExitCode::SUCCESS)
}

fn fits(text: &str, max: usize) -> bool {
    !text.is_empty() && text.chars().count() <= max
}

/// Checks a name in reverse-DNS form.
fn check_name(name: &str) -> Result<()> {
    let is_allowed = |text: &str, more: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    let is_valid = name
        .split_once('/')
        .is_some_and(|(space, own)| is_allowed(space, ".-") && is_allowed(own, "._-"));
    if is_valid && fits(name, MAX_NAME) {
        return Ok(());
    }
    Err(Failure::usage(format!("{name:?} is not a name such as io.github.owner/server")))
}

fn description(text: Option<&String>) -> Result<Value> {
    match text {
        Some(text) if fits(text, MAX_DESCRIPTION) => Ok(text.as_str().into()),
        Some(_) => Err(Failure::usage(format!(
            "the description must have 1 to {MAX_DESCRIPTION} characters: use --description"
        ))),
        None => Err(Failure::usage("the server has no description: use --description")),
    }
}

/// Checks that the version is one version, and not a range.
fn version(text: &str) -> Result<Value> {
    let is_part = |part: &str| part != "x" && part != "X";
    let is_exact = text != "latest"
        && !text.contains(|c: char| c.is_whitespace() || "^~<>=*|".contains(c))
        && text.split('.').all(is_part);
    if is_exact && fits(text, MAX_VERSION) {
        return Ok(text.into());
    }
    Err(Failure::usage(format!("the version of the server, {text:?}, is not one exact version")))
}

fn web_url(option: &str, text: &str) -> Result<Url> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "https" | "http"));
    url.ok_or_else(|| Failure::usage(format!("{option} {text:?} is not a URL of http or https")))
}

/// Returns the name of the service that has a repository.
fn forge(repository: &str) -> Result<&'static str> {
    let url = web_url("--repository", repository)?;
    match url.host_str() {
        Some("github.com") => Ok("github"),
        Some("gitlab.com") => Ok("gitlab"),
        _ => Err(Failure::usage("--repository must be at github.com or gitlab.com")),
    }
}

fn of_manifest(manifest: &Value) -> ServerInfo {
    let text = |key: &str| manifest.get(key).and_then(Value::as_str).map(str::to_owned);
    ServerInfo {
        name: text("name").unwrap_or_default(),
        version: text("version").unwrap_or_default(),
        title: text("display_name"),
        description: text("description"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_slash() {
        assert!(check_name("io.github.owner/server_1.x-y").is_ok());
        for name in ["", "server", "a/b/c", "/b", "a/", "a_b/c", "a/b c"] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name(&format!("a/{}", "b".repeat(199))).is_err());
    }

    #[test]
    fn versions_are_exact() {
        for exact in ["1.0.2", "2.1.0-alpha", "2026-11-26", "1.0.0+build.7"] {
            assert!(version(exact).is_ok(), "{exact}");
        }
        for range in ["", "latest", "^1.2.3", "~1.2", ">=1", "1.x", "1.*", "1.0 || 2.0"] {
            assert!(version(range).is_err(), "{range}");
        }
    }

    #[test]
    fn descriptions_are_short() {
        let text = |length| Some("ä".repeat(length));
        assert!(description(text(100).as_ref()).is_ok());
        assert!(description(text(101).as_ref()).is_err());
        assert!(description(text(0).as_ref()).is_err());
        assert!(description(None).is_err());
    }
}
