//! Adds a server to the configuration of a host.

mod config;
mod hosts;
mod write;

use std::io::{BufRead as _, IsTerminal as _};
use std::process::ExitCode;

use serde_json::{Value, json};

use self::config::Change;
use crate::failure::{Failure, Result};
use crate::options;
use crate::output;

pub(crate) fn run(options: &options::Install, json: bool) -> Result<ExitCode> {
    let (section, entry) = hosts::entry(options)?;
    let path = match &options.file {
        Some(file) => file.clone(),
        None => hosts::file(options.host)?,
    };
    let shown = mrtr::terminal::sanitize_line(&path.display().to_string());
    let before = write::read(&path).map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
    let text = before.as_deref().unwrap_or_default();
    let name = &options.name;
    let change = Change::new(text, section, name, &entry).map_err(|why| {
        let by_hand = json!({ section: { name: hidden(&entry, is_given) } });
        Failure::usage(format!("{shown} {why}. It was not changed. Add this by hand:\n{by_hand:#}"))
    })?;
    let is_needed = change.old.as_ref() != Some(&entry);
    if is_needed {
        output::note(&format!("{shown}, {section:?}:"));
        if let Some(old) = &change.old {
            show('-', name, &hidden(old, is_known));
        }
        show('+', name, &hidden(&entry, is_given));
    }
    let is_written = is_needed && !options.dry_run && (options.yes || ask(&shown)?);
    if is_written {
        write::replace(&path, before.as_deref(), &change.text)
            .map_err(|error| Failure::usage(format!("{shown} was not changed: {error}")))?;
    }
    if json {
        output::json(&json!({ "file": shown, "needed": is_needed, "written": is_written }));
    } else {
        output::line(&match (is_needed, is_written) {
            (false, _) => format!("{shown} has this entry already"),
            (true, true) => format!("{shown} was changed"),
            (true, false) => "nothing was written".to_owned(),
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks whether to write the change.
fn ask(path: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::usage("nothing was written: use --yes to write without a terminal"));
    }
    output::note(&format!("Write this change to {path}? [y/N]"));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(Failure::usage)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// Returns true for members of the new entry that are shown: they were given on the command line.
fn is_given(name: &str, _: &Value) -> bool {
    name != "env"
}

/// Returns true for members of any entry that are shown. Arguments and URLs may contain secrets.
fn is_known(name: &str, value: &Value) -> bool {
    ["type", "command"].contains(&name) && value.is_string()
}

/// Returns an entry without the values that are not shown, which may be secrets.
fn hidden(entry: &Value, is_shown: fn(&str, &Value) -> bool) -> Value {
    match entry {
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                let shown = is_shown(name, value).then(|| value.clone());
                (name.clone(), shown.unwrap_or_else(|| hidden(value, |_, _| false)))
            };
            members.iter().map(member).collect()
        }
        Value::Array(values) => values.iter().map(|value| hidden(value, |_, _| false)).collect(),
        Value::String(_) | Value::Number(_) => "…".into(),
        other => other.clone(),
    }
}

/// Prints an entry with a sign before each line.
fn show(sign: char, name: &str, entry: &Value) {
    for line in format!("{}: {entry:#}", Value::from(name)).lines() {
        output::note(&format!("{sign} {}", mrtr::terminal::sanitize_line(line)));
    }
}
