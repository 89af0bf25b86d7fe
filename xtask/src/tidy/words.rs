//! Retired words: names and phrases that the project no longer uses, each with its replacement.
//!
//! An identifier is found as a whole word in code: in Rust, in TOML, and between backticks in
//! Markdown and comments. A phrase is found in doc comments, string literals and Markdown, in
//! either case and across line breaks.

use proc_macro2::{TokenStream, TokenTree};

use super::TrackedFile;

/// Identifiers, case-sensitive.
const IDENTIFIERS: &[(&str, &str)] = &[
    ("Asks", "use `ClientFeature`"),
    ("asks_form", "use `requires_form`"),
    ("StepRun", "use `StepFuture`"),
    ("sealed_first", "use `after_checkpoint`"),
    ("droppable", "use `skippable`"),
    ("keep_errors", "use `record_errors`"),
    ("people_take_their_time", "use `exclude_handler_time`"),
    ("resending", "use `with_retries`"),
    ("LegSeen", "use `RequestInfo`"),
    ("Completing", "use `CompletionRequest`"),
    ("ExtensionCall", "use `ExtensionRequest`"),
    ("Misfit", "use `DecodeError`"),
    ("goes_on_from", "use `continues_from`"),
];

/// Phrases, in lower case.
const PHRASES: &[(&str, &str)] = &[
    ("whoever", "name the caller"),
    ("nobody", "name the party, or write \"no client\", \"no handler\""),
    ("somebody", "name the party"),
    ("goes on with", "write \"continues with\""),
    ("is none", "write \"is invalid\" or \"is not a …\""),
    ("that is none", "write \"invalid\""),
    ("held against", "write \"compared with\" or \"checked against\""),
    ("passed over", "write \"skipped\" or \"ignored\""),
    ("takes its time", "write \"is slow\""),
    ("moving on", "write \"hand-over\""),
    ("comes to nothing", "write \"fails\" or \"has no effect\""),
    ("stands in", "write \"is in\" or \"is listed in\""),
    ("by the house", "name the crate or the type"),
];

/// Text in front of a phrase that makes it ordinary English.
const EXCEPTIONS: &[(&str, &str)] = &[("is none", "there ")];

/// Files that may contain retired words: these lists, another list, and the changelog.
const EXEMPT: &[&str] = &["xtask/src/tidy/words.rs", "xtask/src/tidy/prose.rs", "CHANGELOG.md"];

pub fn check(files: &[TrackedFile], problems: &mut Vec<String>) {
    for file in files.iter().filter(|file| !EXEMPT.contains(&file.path.as_str())) {
        let mut found = Vec::new();
        if file.is_rust() {
            // Invalid Rust is left to the compiler.
            let tokens: TokenStream = file.text.parse().unwrap_or_default();
            identifiers_among(tokens.clone(), &mut found);
            let comments = file.text.lines().map(|line| Some(line).filter(|line| is_comment(line)));
            identifiers_in_code_of(comments, &mut found);
            for prose in prose_of_rust(&file.text, tokens) {
                prose.find(&mut found);
            }
        } else if file.has_extension("md") {
            identifiers_in_code_of(file.text.lines().map(Some), &mut found);
            let mut prose = Prose::default();
            (1..).zip(file.text.lines()).for_each(|(number, line)| prose.push(number, line));
            prose.find(&mut found);
        } else if file.has_extension("toml") {
            for (number, line) in (1..).zip(file.text.lines()) {
                find(line, IDENTIFIERS, &mut |_, word, instead| {
                    found.push((number, word, instead));
                });
            }
        }
        found.sort_unstable();
        for (line, word, instead) in found {
            problems.push(format!("{}:{line}: {word:?} is retired: {instead}", file.path));
        }
    }
}

type Found = (usize, &'static str, &'static str);

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

fn identifiers_among(tokens: TokenStream, found: &mut Vec<Found>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => identifiers_among(group.stream(), found),
            TokenTree::Ident(ident) => {
                let retired = IDENTIFIERS.iter().find(|(word, _)| ident == word);
                let line = ident.span().start().line;
                found.extend(retired.map(|(word, instead)| (line, *word, *instead)));
            }
            _ => {}
        }
    }
}

/// Finds identifiers in the code of Markdown: in fenced blocks, and between backticks. `None` is a
/// line of another kind.
fn identifiers_in_code_of<'a>(
    lines: impl Iterator<Item = Option<&'a str>>,
    found: &mut Vec<Found>,
) {
    let mut is_fenced = false;
    for (number, line) in (1..).zip(lines) {
        let Some(line) = line else {
            is_fenced = false;
            continue;
        };
        if line.trim_start_matches(['/', '!', ' ']).starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        find(line, IDENTIFIERS, &mut |at, word, instead| {
            let is_quoted =
                line.get(..at).is_some_and(|before| before.matches('`').count() % 2 == 1);
            if is_fenced || is_quoted {
                found.push((number, word, instead));
            }
        });
    }
}

/// Calls `report` with the position, the word and its replacement, for each whole word of the list
/// in the text.
fn find(
    text: &str,
    list: &[(&'static str, &'static str)],
    report: &mut dyn FnMut(usize, &'static str, &'static str),
) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    for (word, instead) in list {
        for (at, _) in text.match_indices(word) {
            let before = text.get(..at).and_then(|before| before.chars().next_back());
            let after = text.get(at + word.len()..).and_then(|after| after.chars().next());
            if !before.is_some_and(is_word) && !after.is_some_and(is_word) {
                report(at, word, instead);
            }
        }
    }
}

/// Consecutive lines as one text in lower case, with single spaces.
#[derive(Default)]
struct Prose {
    text: String,
    /// The position in the text at which each line begins, with its number.
    lines: Vec<(usize, usize)>,
}

impl Prose {
    fn push(&mut self, number: usize, line: &str) {
        self.lines.push((self.text.len(), number));
        for word in line.split_whitespace() {
            self.text.push_str(&word.to_lowercase());
            self.text.push(' ');
        }
    }

    fn find(&self, found: &mut Vec<Found>) {
        find(&self.text, PHRASES, &mut |at, word, instead| {
            let before = self.text.get(..at).unwrap_or_default();
            if EXCEPTIONS.iter().any(|(phrase, front)| *phrase == word && before.ends_with(front)) {
                return;
            }
            let line = self.lines.iter().rev().find(|(start, _)| *start <= at);
            found.push((line.map_or(1, |(_, number)| *number), word, instead));
        });
    }
}

/// Returns doc comments and string literals. Consecutive lines of a doc comment are one piece of
/// prose.
fn prose_of_rust(text: &str, tokens: TokenStream) -> Vec<Prose> {
    let mut all = vec![Prose::default()];
    let mut last = 0;
    read_literals(tokens, &mut |line, literal| {
        let is_doc = text.lines().nth(line - 1).is_some_and(|text| {
            let text = text.trim_start();
            text.starts_with("///") || text.starts_with("//!")
        });
        if !is_doc || line != last + 1 {
            all.push(Prose::default());
        }
        if let Some(prose) = all.last_mut() {
            (line..).zip(literal.lines()).for_each(|(line, text)| prose.push(line, text));
        }
        last = if is_doc { line } else { 0 };
    });
    all
}

/// Reports the string literals among tokens, including doc comments, with their lines.
fn read_literals(tokens: TokenStream, read: &mut dyn FnMut(usize, &str)) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => read_literals(group.stream(), read),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                // Removes the quotes, and `r#` in front of them.
                if let Some((_, text)) = text.split_once('"')
                    && let Some((text, _)) = text.rsplit_once('"')
                {
                    let text = text.replace("\\\n", "\n").replace("\\n", " ");
                    read(literal.span().start().line, &text);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::TrackedFile;
    use super::check;

    fn problems(path: &str, text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        check(&[TrackedFile { path: path.into(), text: text.into() }], &mut problems);
        problems
    }

    #[test]
    fn phrases_are_found_in_prose_only_and_across_lines() {
        let text = "//! First.\n//!\n//! It is held\n//! against Whoever comes.\nfn whoever() { f(\"a\\nNobody\"); }\n// nobody\n";
        assert_eq!(
            problems("a.rs", text),
            [
                "a.rs:3: \"held against\" is retired: write \"compared with\" or \"checked against\"",
                "a.rs:4: \"whoever\" is retired: name the caller",
                "a.rs:5: \"nobody\" is retired: name the party, or write \"no client\", \"no handler\"",
            ]
        );
        assert_eq!(problems("a.md", "x\nIt goes\n  on with y.").len(), 1);
        assert!(
            problems("a.md", "This is nonetheless fine, nobody's `is_none()` and `None`").len()
                == 1
        );
        assert!(problems("a.toml", "# nobody").is_empty());
    }

    #[test]
    fn identifiers_are_whole_words_of_code() {
        let text = "struct Asks; struct AsksMore; fn keep_errors_too() {}\n/// Asks for `StepRun`.\nfn f() { g(\"Asks\") }\n/// ```\n/// Misfit\n/// ```\n";
        let lines: Vec<_> = problems("a.rs", text)
            .iter()
            .map(|line| line.split(" is").next().unwrap().to_owned())
            .collect();
        assert_eq!(lines, ["a.rs:1: \"Asks\"", "a.rs:2: \"StepRun\"", "a.rs:5: \"Misfit\""]);
        assert_eq!(problems("a.toml", "re = \"Misfit\"").len(), 1);
        assert_eq!(problems("a.md", "Asks, `Asks`\n```\nAsks\n```\nAsks").len(), 2);
        assert!(problems("a.json", "Misfit").is_empty());
    }
}
