//! Adds a server to the configuration of a host.

mod config;
mod hosts;
mod write;

use std::io::{BufRead as _, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use crate::failure::{Failure, Result};
use crate::options;
use crate::output;

pub(crate) fn run(options: &options::Install, json: bool) -> Result<ExitCode> {
    let (section, entry) = hosts::entry(options)?;
    let path = match &options.file {
        Some(file) => file.clone(),
        None => hosts::file(options.host)?,
    };
    let shown = path.display().to_string();
    let before = write::read(&path).map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
    let text = before.as_deref().unwrap_or_default();
    let after = config::with_entry(text, section, &options.name, &entry).map_err(|why| {
        let by_hand = json!({ section: { &options.name: entry } });
        Failure::usage(format!("{shown} {why}. It was not changed. Add this by hand:\n{by_hand:#}"))
    })?;
    let is_changed = after != text;
    if is_changed && !json {
        output::note(&format!("{shown}:"));
        for line in difference(text, &after) {
            output::note(&line);
        }
    }
    let is_written = is_changed && !options.dry_run && (options.yes || ask(&path)?);
    if is_written {
        write::replace(&path, before.as_deref(), &after)
            .map_err(|error| Failure::usage(format!("{shown} was not changed: {error}")))?;
    }
    if json {
        output::json(&json!({ "file": shown, "changed": is_written }));
    } else if !is_changed {
        output::line(&format!("{shown} has this entry already"));
    } else if is_written {
        output::line(&format!("{shown} was changed"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks whether to write the change.
fn ask(path: &Path) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage("nothing was written: use --yes to write without a terminal"));
    }
    output::note(&format!("Write this change to {}? [y/N]", path.display()));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(Failure::usage)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// Returns the lines that differ, with a sign, and the lines before and after them.
fn difference(before: &str, after: &str) -> Vec<String> {
    let (old, new): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let start = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let rest = old.len().min(new.len()) - start;
    let ends = old.iter().rev().zip(new.iter().rev()).take(rest);
    let end = ends.take_while(|(old, new)| old == new).count();
    let mut lines = Vec::new();
    let mut add = |sign: char, of: &[&str], from: usize, to: usize| {
        for line in of.get(from..to).unwrap_or_default() {
            lines.push(format!("{sign} {}", mrtr::terminal::sanitize(line)));
        }
    };
    add(' ', &new, start.saturating_sub(1), start);
    add('-', &old, start, old.len() - end);
    add('+', &new, start, new.len() - end);
    add(' ', &new, new.len() - end, new.len() - end + end.min(1));
    lines
}
