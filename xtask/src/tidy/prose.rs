//! The prose of doc comments in the published crates: the first word of summaries, and the length
//! of lines.

use super::{TrackedFile, published};

/// Words that a summary should not begin with.
const QUESTION_WORDS: &[&str] =
    &["what", "who", "whoever", "whose", "how", "whether", "why", "where", "which", "when"];

/// Maximum number of summaries in a thousand that begin with one of these words.
const MAX_PER_MILLE: usize = 30;

/// Maximum length of a line of a doc comment, in characters.
const MAX_COLUMNS: usize = 100;

pub fn check(files: &[TrackedFile], problems: &mut Vec<String>) {
    let (mut summaries, mut offenders, mut long) = (0, Vec::new(), Vec::new());
    for file in files.iter().filter(|file| is_published(file)) {
        for summary in summaries_of(&file.text) {
            summaries += 1;
            if begins_with_question_word(summary.text) {
                offenders.push(format!("{}:{}: {}", file.path, summary.line, summary.text));
            }
        }
        for (number, line) in (1..).zip(file.text.lines()) {
            let columns = line.chars().count();
            if doc_text(line).is_some_and(is_breakable) && columns > MAX_COLUMNS {
                long.push(format!("{}:{number}: {columns} columns", file.path));
            }
        }
    }
    // In tenths of a percent, rounded up.
    let share = (offenders.len() * 1000).div_ceil(summaries.max(1));
    println!(
        "tidy: {} of {summaries} doc summaries ({}.{} %) begin with a question word; {} doc lines have more than {MAX_COLUMNS} columns",
        offenders.len(),
        share / 10,
        share % 10,
        long.len()
    );
    if share > MAX_PER_MILLE {
        problems.push(format!(
            "more than {} % of the doc summaries begin with what, who, how …: begin with a verb (\"Returns …\") or the thing's name\n      {}",
            MAX_PER_MILLE / 10,
            offenders.join("\n      ")
        ));
    }
    if !long.is_empty() {
        problems.push(format!(
            "{} doc lines are longer than {MAX_COLUMNS} columns\n      {}",
            long.len(),
            long.join("\n      ")
        ));
    }
}

fn is_published(file: &TrackedFile) -> bool {
    let mut folders = file.path.split('/');
    file.is_rust()
        && folders.next() == Some("crates")
        && folders.next().is_some_and(|name| published().any(|folder| folder == name))
}

/// Returns the text of a line of a doc comment.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    // A line of slashes is an ordinary comment.
    (!text.starts_with('/')).then_some(text.trim())
}

/// Returns true if a line can be shorter: it is not one long word, such as the target of a link.
fn is_breakable(text: &str) -> bool {
    let is_link = text.starts_with('[') && text.contains("]: ");
    !is_link && text.contains(' ')
}

struct Summary<'a> {
    line: usize,
    text: &'a str,
}

/// Returns the first line of each doc comment.
fn summaries_of(text: &str) -> Vec<Summary<'_>> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for (line, text) in (1..).zip(text.lines()) {
        let text = doc_text(text);
        if let (Some(text), false) = (text, is_inside) {
            found.push(Summary { line, text });
        }
        is_inside = text.is_some();
    }
    found
}

fn begins_with_question_word(summary: &str) -> bool {
    let first = summary.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    QUESTION_WORDS.contains(&first.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::super::TrackedFile;
    use super::check;

    fn problems(text: &str) -> Vec<String> {
        let file = |path: &str| TrackedFile { path: path.into(), text: text.into() };
        let mut problems = Vec::new();
        check(&[file("crates/server/src/a.rs"), file("crates/chaos/src/a.rs")], &mut problems);
        problems
    }

    #[test]
    fn summaries_that_begin_with_question_words_are_counted() {
        let good = "/// Returns it.\n/// What it was before.\nfn f() {}\n".repeat(97);
        let three = "    //! What's this.\n    x\n".repeat(3);
        assert!(problems(&format!("{good}{three}")).is_empty());
        let [problem] = &problems(&format!("{good}{three}/// Who calls.\n"))[..] else { panic!() };
        assert!(problem.contains("crates/server/src/a.rs:298: Who calls."), "{problem}");
        assert!(problem.starts_with("more than 3 %"));
    }

    #[test]
    fn doc_lines_have_a_length() {
        let words = "word ".repeat(20);
        assert!(problems(&format!("// {words}\n/// {}\n", "w".repeat(200))).is_empty());
        let [problem] = &problems(&format!("/// {words}.\n"))[..] else { panic!() };
        assert!(problem.ends_with("crates/server/src/a.rs:1: 105 columns"), "{problem}");
    }
}
