//! The ledger of requirements, `docs/requirements.md`: that what it says is there is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::Result;
use crate::run::root;

/// Where the ledger is.
pub const LEDGER: &str = "docs/requirements.md";

/// Between these lines of the ledger stands what `cargo xtask rivals` found.
pub const BEGIN: &str = "<!-- rivals: begin -->";
pub const END: &str = "<!-- rivals: end -->";

const LEVELS: [&str; 4] = ["MUST", "MUST NOT", "SHOULD", "SHOULD NOT"];
const SIDES: [&str; 3] = ["server", "client", "both"];

/// What may stand where a requirement has no test, and how it is counted.
const REASONS: [&str; 4] = ["explained", "not ours", "later", "open"];

/// One row: what a requirement is covered by.
struct Row<'a> {
    id: &'a str,
    level: &'a str,
    cover: &'a str,
}

impl<'a> Row<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        let (id, level, cover) = (cells.next()?, cells.next()?, cells.nth(1)?);
        let is_id =
            |id: &str| id.split_once('/').is_some_and(|(page, slug)| word(page) && word(slug));
        is_id(id).then_some(Self { id, level, cover })
    }

    /// Tests, as file and function; and scenarios of the official suite.
    fn references(&self) -> impl Iterator<Item = &'a str> {
        self.cover.split('`').skip(1).step_by(2)
    }

    fn reason(&self) -> Option<&'static str> {
        let kind = self.cover.split_once(": ").map_or("", |(kind, _)| kind);
        REASONS.into_iter().find(|reason| *reason == kind)
    }
}

fn word(text: &str) -> bool {
    let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !text.is_empty() && text.bytes().all(fits)
}

/// Checks the ledger, and the ids that sources name as `req: page/slug`.
pub fn check(sources: &[(String, String)], wrong: &mut Vec<String>) -> Result {
    let ledger = read()?;
    let files: BTreeMap<_, _> = sources.iter().map(|(name, text)| (name.as_str(), text)).collect();
    let (mut ids, mut counts, mut open) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
    for row in ledger.lines().filter_map(Row::of) {
        let Row { id, level, cover } = row;
        if !ids.insert(id) {
            wrong.push(format!("{LEDGER}: {id} stands there twice"));
        }
        let (must, side) = level.split_once(", ").unwrap_or_default();
        if !LEVELS.contains(&must) || !SIDES.contains(&side) {
            wrong.push(format!("{LEDGER}: {id} is {level:?}"));
        }
        for reference in row.references() {
            let Some((file, function)) = reference.split_once(".rs::") else { continue };
            let text = files.get(format!("crates/{file}.rs").as_str());
            if !text.is_some_and(|text| text.contains(&format!("fn {function}("))) {
                wrong.push(format!("{LEDGER}: {id} names a test that is not there: {reference}"));
            }
        }
        let kind = row.reason().unwrap_or("covered");
        let is_shown = |text: &str| text.contains(".rs::") || text.starts_with("suite: ");
        if kind == "covered" && !row.references().any(is_shown) {
            wrong.push(format!("{LEDGER}: {id} is neither covered nor explained: {cover:?}"));
        }
        *counts.entry(kind).or_insert(0) += 1;
        if kind == "open" {
            open.push(id);
        }
    }
    for (name, text) in sources {
        for after in text.split("(req: ").skip(1) {
            let id = after.split([')', '"']).next().unwrap_or_default();
            if !ids.contains(id) && !name.ends_with("requirements.rs") {
                wrong.push(format!("{name} names the requirement {id:?}, which {LEDGER} lacks"));
            }
        }
    }
    let counts: Vec<_> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    println!("tidy: {} requirements: {}", ids.len(), counts.join(", "));
    for id in open {
        println!("tidy: open is {id}");
    }
    Ok(())
}

/// Where attacks stand, each with the tests that show what becomes of it.
const ATTACKS: &str = "docs/security-tests.md";

/// Checks that each attack has a test that is there, or is said to have none.
pub fn check_attacks(sources: &[(String, String)], wrong: &mut Vec<String>) -> Result {
    let text = fs::read_to_string(root().join(ATTACKS))?;
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let (mut count, mut open) = (0, Vec::new());
    for row in rows.filter(|row| !row.starts_with("attack |")) {
        let (attack, shown) = row.split_once(" | ").unwrap_or_default();
        count += 1;
        if attack.starts_with("open") {
            open.push(attack);
            continue;
        }
        let tests: Vec<_> = shown
            .split('`')
            .skip(1)
            .step_by(2)
            .filter_map(|text| text.split_once(".rs::"))
            .collect();
        if tests.is_empty() {
            wrong.push(format!("{ATTACKS}: nothing shows what becomes of: {attack}"));
        }
        for (file, function) in tests {
            let name = format!("crates/{file}.rs");
            let text = sources.iter().find(|(source, _)| *source == name);
            if !text.is_some_and(|(_, text)| text.contains(&format!("fn {function}("))) {
                wrong.push(format!(
                    "{ATTACKS} names a test that is not there: {file}.rs::{function}"
                ));
            }
        }
    }
    println!("tidy: {count} attacks, {} of them without a test", open.len());
    Ok(())
}

/// The ledger's own rows, without what was found about others.
fn read() -> Result<String> {
    let ledger = fs::read_to_string(root().join(LEDGER))?;
    Ok(ledger.split(BEGIN).next().unwrap_or_default().to_owned())
}

/// All ids, with their levels.
pub fn ids() -> Result<BTreeMap<String, String>> {
    let level =
        |row: Row| (row.id.to_owned(), row.level.split(',').next().unwrap_or("").to_owned());
    Ok(read()?.lines().filter_map(Row::of).map(level).collect())
}

/// The scenarios of the official suite that the ledger relies on.
pub fn scenarios() -> Result<BTreeSet<String>> {
    let ledger = read()?;
    let references =
        ledger.lines().filter_map(Row::of).flat_map(|row| row.references().collect::<Vec<_>>());
    Ok(references.filter_map(|text| Some(text.strip_prefix("suite: ")?.to_owned())).collect())
}
