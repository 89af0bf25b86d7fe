//! Makes an MCPB bundle of a built server (MCP Bundles, manifest version 0.3).

mod archive;
mod manifest;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use mrtr::Client;
use mrtr::schema::capabilities::Implementation;
use mrtr::stdio::{ChildConnection, ChildServer};
use serde_json::json;

use self::manifest::Facts;
use crate::failure::{Failure, Result};
use crate::options;
use crate::output;
use crate::server_info::server_info;

pub(crate) use self::archive::Bundle;

/// The time that a server may take to start and to describe itself, and the time to end.
const TIMEOUT: Duration = Duration::from_secs(30);
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) async fn run(options: &options::Bundle, json: bool) -> Result<ExitCode> {
    let of_file =
        |why: &dyn std::fmt::Display| Failure::usage(format!("{}: {why}", options.file.display()));
    let Some((program, args)) = options.command.split_first() else {
        return Err(Failure::usage("no command"));
    };
    let of_program = |why: &dyn std::fmt::Display| Failure::usage(format!("{program}: {why}"));
    // A name without a separator would be started from `PATH`, and read from the current folder.
    let path = std::path::absolute(program).map_err(|error| of_program(&error))?;
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| of_program(&"it has no file name in UTF-8"))?;
    let binary = std::fs::read(&path).map_err(|error| of_program(&error))?;
    archive::check_target(&options.file).map_err(|error| of_file(&error))?;
    let facts = ask(&path, args).await?;
    let manifest = manifest::of(options, &facts, name, args)?;
    let sha256 = archive::write(&options.file, &manifest, name, &binary);
    let sha256 = sha256.map_err(|error| of_file(&error))?;
    if json {
        output::json(&json!({ "manifest": manifest, "sha256": sha256 }));
    } else {
        let shown = mrtr::terminal::sanitize_line(&options.file.display().to_string());
        let info =
            mrtr::terminal::sanitize_line(&format!("{} {}", facts.info.name, facts.info.version));
        let tools = manifest.get("tools").and_then(serde_json::Value::as_array).map_or(0, Vec::len);
        output::line(&format!("{shown} has {info}; tools: {tools}"));
        output::line(&format!("SHA-256 {sha256}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts the server, and asks what it is and has.
async fn ask(program: &Path, args: &[String]) -> Result<Facts> {
    let connection = ChildConnection::new(ChildServer::new(program, args));
    let info = Implementation::new("mrtr-cli", env!("CARGO_PKG_VERSION"));
    let client = Client::builder(connection).info(info).call_timeout(TIMEOUT).build();
    let facts = async {
        let found = client.discover().await?;
        let capabilities = &found.capabilities;
        let tools = match capabilities.tools {
            Some(_) => client.list_tools().await?,
            None => Vec::new(),
        };
        Ok::<_, mrtr::CallError>(Facts {
            has_prompts: capabilities.prompts.is_some(),
            tools_change: capabilities.tools.as_ref().and_then(|tools| tools.list_changed)
                == Some(true),
            info: server_info(&found).unwrap_or_else(|| Implementation::new("", "")),
            tools,
        })
    };
    let facts = facts.await;
    client.transport().shutdown(SHUTDOWN_TIMEOUT).await;
    Ok(facts?)
}
