//! Prints the `server.json` of a server, for the MCP registry (schema 2025-12-11).

use std::process::ExitCode;

use mrtr::schema::Object;
use mrtr::schema::capabilities::Implementation;
use serde_json::{Value, json};
use url::{Host, Url};

use crate::bundle::Bundle;
use crate::failure::{Failure, Result};
use crate::options::{self, Server};
use crate::output;
use crate::server_info::server_info;

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
        let url = public_url("--bundle-url", url)?;
        if !url.as_str().contains("mcp") {
            return Err(Failure::usage(
                "--bundle-url must contain \"mcp\": the registry demands it",
            ));
        }
        packages.push(json!({
            "registryType": "mcpb",
            "identifier": url.as_str(),
            "fileSha256": bundle.sha256,
            "transport": { "type": "stdio" },
        }));
        let manifest = of_manifest(&bundle.manifest);
        info = Some(manifest.ok_or_else(|| {
            Failure::usage(format!("{}: the manifest has no text `version`", file.display()))
        })?);
    }
    if let Some(url) = &options.url {
        let url = public_url("--url", url)?;
        remotes.push(json!({ "type": "streamable-http", "url": url.as_str() }));
        if info.is_none() {
            let token_env = options.token_env.clone();
            let server = Server { url: url.into(), token_env, timeout: TIMEOUT_SECONDS };
            let found = server.client()?.build().discover().await?;
            info = Some(server_info(&found).unwrap_or_else(|| Implementation::new("", "")));
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
    if let Some(url) = &info.website_url {
        match public_url("the server's website URL", url) {
            Ok(url) => set("websiteUrl", url.as_str().into()),
            Err(Failure { message, .. }) => output::note(&format!("left out: {message}")),
        }
    }
    if let Some(repository) = &options.repository {
        let (url, source) = forge(repository)?;
        set("repository", json!({ "url": url.as_str(), "source": source }));
    }
    for (key, list) in [("packages", packages), ("remotes", remotes)] {
        if !list.is_empty() {
            set(key, list.into());
        }
    }
    // It is made for a file, which must be complete.
    output::try_json(&document).map_err(|error| Failure { code: 1, message: error.to_string() })?;
    Ok(ExitCode::SUCCESS)
}

fn fits(text: &str, max: usize) -> bool {
    !text.is_empty() && text.chars().count() <= max
}

/// Checks a name in reverse-DNS form, as the registry does.
fn check_name(name: &str) -> Result<()> {
    let is_part = |part: &str, marks: &str| {
        let is_alphanumeric = |c: char| c.is_ascii_alphanumeric();
        part.len() >= 2
            && part.starts_with(is_alphanumeric)
            && part.ends_with(is_alphanumeric)
            && part.chars().all(|c| is_alphanumeric(c) || marks.contains(c))
    };
    let is_valid = name
        .split_once('/')
        .is_some_and(|(space, own)| is_part(space, ".-") && is_part(own, "._-"));
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

/// Reads a URL that everyone can use: https, without credentials, and not of this machine.
fn public_url(option: &str, text: &str) -> Result<Url> {
    let error = |why: &str| Failure::usage(format!("{option} {text:?} {why}"));
    let url = Url::parse(text).map_err(|_| error("is not a URL"))?;
    if url.scheme() != "https" {
        return Err(error("does not begin with https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(error("has credentials, which everyone could read"));
    }
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback() || ip.is_unspecified(),
        Some(Host::Ipv6(ip)) => ip.is_loopback() || ip.is_unspecified(),
        None => true,
    };
    if is_local { Err(error("is of this machine")) } else { Ok(url) }
}

/// Returns the URL of a repository, and the name of the service that has it.
fn forge(repository: &str) -> Result<(Url, &'static str)> {
    let url = public_url("--repository", repository)?;
    let source = match url.host_str().map(|host| host.trim_start_matches("www.")) {
        Some("github.com") => Some("github"),
        Some("gitlab.com") => Some("gitlab"),
        _ => None,
    };
    let parts = url.path().trim_matches('/').split('/').filter(|part| !part.is_empty()).count();
    // Groups of GitLab have subgroups.
    let is_repository = parts == 2 || parts > 2 && source == Some("gitlab");
    match source {
        Some(source) if is_repository && url.query().is_none() && url.fragment().is_none() => {
            Ok((url, source))
        }
        _ => Err(Failure::usage(
            "--repository must be like https://github.com/owner/repository, or of gitlab.com",
        )),
    }
}

fn of_manifest(manifest: &Value) -> Option<Implementation> {
    let text = |key: &str| manifest.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut info = Implementation::new(text("name").unwrap_or_default(), text("version")?);
    info.title = text("display_name");
    info.description = text("description");
    info.website_url = text("homepage");
    Some(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_slash() {
        assert!(check_name("io.github.owner/server_1.x-y").is_ok());
        for name in
            ["", "server", "ab/cd/ef", "/bc", "ab/", "a_b/cd", "ab/c d", "a.b/c", "-a/bc", "ab/c-"]
        {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name(&format!("ab/{}", "b".repeat(198))).is_err());
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
    fn urls_are_public() {
        let url = |text: &str| public_url("--url", text).ok().map(String::from);
        assert_eq!(url("HTTPS://x.example/mcp").as_deref(), Some("https://x.example/mcp"));
        assert_eq!(url(" https://x.example/a b").as_deref(), Some("https://x.example/a%20b"));
        for other in [
            "x.example",
            "http://x.example/mcp",
            "ftp://x.example",
            "https://user:secret@x.example/",
            "https://user@x.example/",
            "https://localhost/",
            "https://127.0.0.1/mcp",
            "https://[::1]/mcp",
        ] {
            assert!(url(other).is_none(), "{other}");
        }
        let repository = |text: &str| forge(text).ok().map(|(_, source)| source);
        assert_eq!(repository("https://github.com/owner/repository"), Some("github"));
        assert_eq!(repository("https://www.gitlab.com/a/b/c"), Some("gitlab"));
        for other in [
            "https://github.com",
            "https://github.com/owner",
            "https://github.com/owner/repository/tree/main/server",
            "https://github.com/owner/repository#readme",
            "https://x.example/a/b",
        ] {
            assert_eq!(repository(other), None, "{other}");
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
