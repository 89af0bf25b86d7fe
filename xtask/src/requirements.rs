//! The ledger of requirements, `docs/requirements.md`: that what it says is there is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::run::root;
use crate::{Result, page};

/// Where the ledger is.
pub const LEDGER: &str = "docs/requirements.md";

/// The part of the ledger that `cargo xtask rivals` writes.
pub const RIVALS: &str = "rivals";

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
        quoted(self.cover)
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
    let files = by_name(sources);
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
        let tests = check_tests(cover, &files, &format!("{LEDGER}: {id}"), wrong);
        let kind = row.reason().unwrap_or("covered");
        let is_shown = tests > 0 || row.references().any(|text| text.starts_with("suite: "));
        if kind == "covered" && !is_shown {
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

fn by_name(sources: &[(String, String)]) -> BTreeMap<&str, &str> {
    sources.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect()
}

/// What stands in a cell between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Checks that the tests that a cell names, as file and function, are there. How many it names.
fn check_tests(
    cell: &str,
    files: &BTreeMap<&str, &str>,
    of: &str,
    wrong: &mut Vec<String>,
) -> usize {
    let tests = quoted(cell).filter_map(|text| text.split_once(".rs::"));
    tests
        .map(|(file, function)| {
            let text = files.get(format!("crates/{file}.rs").as_str());
            if !text.is_some_and(|text| text.contains(&format!("fn {function}("))) {
                wrong.push(format!("{of} names a test that is not there: {file}.rs::{function}"));
            }
        })
        .count()
}

/// Where attacks stand, each with the tests that show what becomes of it.
const ATTACKS: &str = "docs/security-tests.md";

/// Checks that each attack has a test that is there, or is said to have none.
pub fn check_attacks(sources: &[(String, String)], wrong: &mut Vec<String>) -> Result {
    let (text, files) = (fs::read_to_string(root().join(ATTACKS))?, by_name(sources));
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let (mut count, mut open) = (0, Vec::new());
    for row in rows.filter(|row| !row.starts_with("attack |")) {
        let (attack, shown) = row.split_once(" | ").unwrap_or_default();
        count += 1;
        if attack.starts_with("open") {
            open.push(attack);
            continue;
        }
        if check_tests(shown, &files, &format!("{ATTACKS}: {attack}"), wrong) == 0 {
            wrong.push(format!("{ATTACKS}: nothing shows what becomes of: {attack}"));
        }
    }
    println!("tidy: {count} attacks, {} of them without a test", open.len());
    Ok(())
}

/// The ledger's own rows, without what was found about others.
fn read() -> Result<String> {
    let [own, ..] = page::split(LEDGER, RIVALS)?;
    Ok(own)
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
