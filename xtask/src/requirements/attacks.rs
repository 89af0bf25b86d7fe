//! The attacks of the threat model, each with the tests that show its outcome.

use std::fs;

use super::sources::Sources;
use crate::Result;
use crate::run::root;

const PAGE: &str = "docs/threat-model.md";

/// The heading of the column that names tests. Tables without it list no attacks.
const SHOWN_BY: &str = "Shown by";

/// Checks that each attack has a test, that the tests exist, and that the page lists attacks.
pub fn check(sources: &[(String, String)], wrong: &mut Vec<String>) -> Result {
    let count = check_page(&fs::read_to_string(root().join(PAGE))?, &Sources::new(sources), wrong);
    println!("tidy: {count} attacks");
    Ok(())
}

/// Returns the number of attacks.
fn check_page(text: &str, sources: &Sources<'_>, wrong: &mut Vec<String>) -> usize {
    let (mut count, mut is_attack) = (0, false);
    for line in text.lines() {
        let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) else {
            // The rule below a heading belongs to the heading's table.
            is_attack &= line.starts_with("|---");
            continue;
        };
        let (rest, last) = row.rsplit_once(" | ").unwrap_or_default();
        if last == SHOWN_BY {
            is_attack = true;
        } else if is_attack {
            count += 1;
            let attack = rest.split(" | ").next().unwrap_or_default();
            let tests: Vec<_> = last.split('`').skip(1).step_by(2).collect();
            if tests.is_empty() {
                wrong.push(format!("{PAGE}: no test shows the outcome of {attack:?}"));
            }
            for test in tests.into_iter().filter(|test| !sources.have(test)) {
                wrong.push(format!("{PAGE}: {attack}: the test {test:?} does not exist"));
            }
        }
    }
    if count == 0 {
        wrong.push(format!("{PAGE}: no table with a column {SHOWN_BY:?}"));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::{Sources, check_page};

    #[test]
    fn attacks_need_tests_that_exist() {
        let page = "\
| attacker | has |\n|---|---|\n| a client | its tokens |\n\n\
| Attack | Outcome | Shown by |\n|---|---|---|\n\
| one | rejected | `a/src/b.rs::holds` |\n\
| two | rejected | later |\n\
| three | rejected | `a/src/b.rs::holds`, `a/src/b.rs::gone` |\n";
        let sources = [("crates/a/src/b.rs".to_owned(), "fn holds() {}".to_owned())];
        let mut wrong = Vec::new();
        assert_eq!(check_page(page, &Sources::new(&sources), &mut wrong), 3);
        let [two, three] = wrong.as_slice() else { panic!("{wrong:?}") };
        assert!(two.contains("\"two\"") && three.contains("gone"), "{wrong:?}");
        check_page("", &Sources::new(&sources), &mut wrong);
        assert_eq!(wrong.len(), 3);
    }
}
