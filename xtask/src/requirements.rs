//! The ledger of requirements, `conformance/requirements/`: one TOML file for each page of the
//! specification.
//!
//! `tidy` checks that the ledger is complete, that each cited test exists, and that its summary is
//! current.

mod attacks;
mod sources;
mod summary;

use std::collections::BTreeSet;
use std::fs;

use serde::Deserialize;
use toml::Table;

pub use attacks::check as check_attacks;

use crate::Result;
use crate::run::root;
use sources::Sources;

/// The directory of the ledger.
pub const LEDGER: &str = "conformance/requirements";

/// One page of the specification, and its requirements in the order of their ids.
struct Page {
    /// The name of its file, which is also the first part of its ids.
    name: String,
    title: String,
    url: String,
    requirements: Vec<(String, Requirement)>,
}

/// A requirement, in our own words, and its evidence.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    // The level, in the field of the side that it applies to.
    server: Option<Level>,
    client: Option<Level>,
    both: Option<Level>,
    text: String,
    /// Tests, as `crate/file.rs::function` below `crates/`.
    #[serde(default)]
    tests: Vec<String>,
    /// Scenarios of the official suite.
    #[serde(default)]
    scenarios: Vec<String>,
    /// Set unless the tests and scenarios cover the whole requirement.
    status: Option<Status>,
    reason: Option<String>,
    #[serde(rename = "note")]
    _note: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Level {
    #[serde(rename = "MUST")]
    Must,
    #[serde(rename = "MUST NOT")]
    MustNot,
    #[serde(rename = "SHOULD")]
    Should,
    #[serde(rename = "SHOULD NOT")]
    ShouldNot,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// Covered by a test or scenario. Not written in the ledger.
    #[serde(skip)]
    Tested,
    Explained,
    #[serde(rename = "not ours")]
    NotOurs,
    Open,
}

impl Status {
    const ALL: [(Self, &str); 4] = [
        (Self::Tested, "tested"),
        (Self::Explained, "explained"),
        (Self::NotOurs, "not ours"),
        (Self::Open, "open"),
    ];
}

impl Requirement {
    /// Returns the level, or `None` unless exactly one side has one.
    fn level(&self) -> Option<Level> {
        let mut levels = [self.server, self.client, self.both].into_iter().flatten();
        levels.next().filter(|_| levels.next().is_none())
    }

    fn status(&self) -> Status {
        self.status.unwrap_or(Status::Tested)
    }

    /// Reports every problem of the requirement.
    fn check(&self, id: &str, page: &str, sources: &Sources<'_>, wrong: &mut Vec<String>) {
        let mut report = |what: &str| wrong.push(format!("{LEDGER}/{page}.toml: {id}: {what}"));
        if !id.split_once('/').is_some_and(|(prefix, slug)| prefix == page && is_slug(slug)) {
            report(
                "the id does not have the form page/slug, with the name of its file as the page",
            );
        }
        if self.level().is_none() {
            report("needs a level for exactly one of `server`, `client` and `both`");
        }
        if self.text.is_empty() {
            report("the text is empty");
        }
        match (self.status, self.reason.as_deref()) {
            (None, None) if self.tests.is_empty() && self.scenarios.is_empty() => {
                report("needs a test, a scenario, or a status and a reason");
            }
            (None, None) => {}
            (Some(_), Some(reason)) if !reason.is_empty() => {}
            _ => report("`status` and `reason` belong together"),
        }
        for test in &self.tests {
            if !sources.have(test) {
                report(&format!("the test {test:?} does not exist"));
            }
        }
    }
}

fn is_slug(text: &str) -> bool {
    let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !text.is_empty() && text.bytes().all(fits)
}

/// Checks the ledger against the sources, and its summary against the ledger.
pub fn check(sources: &[(String, String)], wrong: &mut Vec<String>) -> Result {
    let (pages, sources) = (read()?, Sources::new(sources));
    for page in &pages {
        for (id, requirement) in &page.requirements {
            requirement.check(id, &page.name, &sources, wrong);
        }
    }
    if !summary::is_current(&pages)? {
        wrong.push(format!("{} is stale: run `cargo xtask requirements --write`", summary::PAGE));
    }
    println!("tidy: {}", counted(&pages));
    for (id, _) in all(&pages).filter(|(_, requirement)| requirement.status() == Status::Open) {
        println!("tidy: open requirement: {id}");
    }
    Ok(())
}

/// Prints the number of requirements by status. With `--write`, writes the summary.
pub fn run(args: &[String]) -> Result {
    let pages = read()?;
    println!("{}", counted(&pages));
    match args {
        [] => Ok(()),
        [write] if write == "--write" => summary::write(&pages),
        [other, ..] => Err(format!("unknown option {other:?}").into()),
    }
}

fn counted(pages: &[Page]) -> String {
    let count = |status| all(pages).filter(|(_, one)| one.status() == status).count();
    let counts = Status::ALL.map(|(status, name)| (count(status), name));
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<_> = counts.map(|(count, name)| format!("{count} {name}")).collect();
    format!("{} requirements: {}", all(pages).count(), counts.join(", "))
}

fn all(pages: &[Page]) -> impl Iterator<Item = &(String, Requirement)> {
    pages.iter().flat_map(|page| &page.requirements)
}

/// Reads all pages, in the order of their file names.
fn read() -> Result<Vec<Page>> {
    let entries: Vec<_> = fs::read_dir(root().join(LEDGER))?.collect::<std::io::Result<_>>()?;
    let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    let page = |path: &std::path::PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        parse(&name, &fs::read_to_string(path)?)
            .map_err(|error| format!("{}: {error}", path.display()).into())
    };
    paths.iter().map(page).collect()
}

fn parse(name: &str, text: &str) -> Result<Page> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Head {
        title: String,
        url: String,
    }

    let mut table: Table = text.parse()?;
    let Head { title, url } = table.remove("page").ok_or("no table `page`")?.try_into()?;
    let requirements = table.into_iter().map(|(id, entry)| match entry.try_into() {
        Ok(requirement) => Ok((id, requirement)),
        Err(error) => Err(format!("{id}: {error}")),
    });
    let requirements = requirements.collect::<std::result::Result<_, _>>()?;
    Ok(Page { name: name.to_owned(), title, url, requirements })
}

/// Returns the ids of all requirements.
pub fn ids() -> Result<BTreeSet<String>> {
    Ok(all(&read()?).map(|(id, _)| id.clone()).collect())
}

/// Returns the scenarios of the official suite that the ledger cites.
pub fn scenarios() -> Result<BTreeSet<String>> {
    Ok(all(&read()?).flat_map(|(_, requirement)| requirement.scenarios.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::{Sources, parse};

    fn wrong(entry: &str) -> Vec<String> {
        let head = "[page]\ntitle = \"T\"\nurl = \"u\"\n";
        let page = match parse("base", &format!("{head}{entry}")) {
            Ok(page) => page,
            Err(error) => return vec![error.to_string()],
        };
        let sources = [("crates/a/src/b.rs".to_owned(), "fn holds() {}".to_owned())];
        let mut wrong = Vec::new();
        for (id, requirement) in &page.requirements {
            requirement.check(id, &page.name, &Sources::new(&sources), &mut wrong);
        }
        wrong
    }

    #[test]
    fn complete_entries_are_accepted() {
        for rest in [
            "tests = [\"a/src/b.rs::holds\"]",
            "scenarios = [\"s\"]",
            "status = \"not ours\"\nreason = \"Because.\"",
            "tests = [\"a/src/b.rs::holds\"]\nstatus = \"explained\"\nreason = \"In part.\"",
        ] {
            let entry = format!("[\"base/x\"]\nboth = \"MUST\"\ntext = \"X.\"\n{rest}");
            assert_eq!(wrong(&entry), [""; 0], "{entry}");
        }
    }

    #[test]
    fn incomplete_entries_are_reported() {
        for (id, rest, why) in [
            ("base/x", "both = \"MUST\"\ntext = \"X.\"", "needs a test"),
            ("base/x", "text = \"X.\"\nscenarios = [\"s\"]", "exactly one"),
            (
                "base/x",
                "server = \"MUST\"\nclient = \"MUST\"\ntext = \"X.\"\nscenarios = [\"s\"]",
                "exactly one",
            ),
            ("base/x", "both = \"MAY\"\ntext = \"X.\"\nscenarios = [\"s\"]", "unknown variant"),
            ("base/x", "both = \"MUST\"\ntext = \"X.\"\nscenario = [\"s\"]", "unknown field"),
            (
                "base/x",
                "both = \"MUST\"\ntext = \"X.\"\ntests = [\"a/src/b.rs::fails\"]",
                "does not exist",
            ),
            ("base/x", "both = \"MUST\"\ntext = \"X.\"\nstatus = \"open\"", "belong together"),
            ("base/x", "both = \"MUST\"\ntext = \"\"\nscenarios = [\"s\"]", "text is empty"),
            ("other/x", "both = \"MUST\"\ntext = \"X.\"\nscenarios = [\"s\"]", "page/slug"),
            ("base/X", "both = \"MUST\"\ntext = \"X.\"\nscenarios = [\"s\"]", "page/slug"),
        ] {
            let found = wrong(&format!("[{id:?}]\n{rest}"));
            assert!(found.iter().any(|found| found.contains(why)), "{rest}: {found:?}");
        }
    }
}
