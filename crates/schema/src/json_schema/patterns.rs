//! What regular expressions cost.

/// The size of a class of Unicode characters, compared with a character.
const UNICODE_CLASS: u64 = 300;

/// Returns about how many characters and classes a regular expression has, if repetitions are
/// written out.
pub(super) fn size(pattern: &str) -> u64 {
    // The sizes of the groups that are open, and of what was read last.
    let (mut groups, mut last) = (vec![0_u64], 0_u64);
    let mut rest = pattern.chars();
    while let Some(character) = rest.next() {
        let text = rest.as_str();
        let group = groups.last().copied().unwrap_or_default();
        let (size, skipped) = match character {
            '(' => {
                groups.push(0);
                last = 0;
                continue;
            }
            ')' if groups.len() > 1 => {
                groups.pop();
                (group, 0)
            }
            '{' => {
                let (bounds, length) = bounds(text);
                let more = last.saturating_mul(bounds.saturating_sub(1));
                (more, length)
            }
            '[' => (class_size(text), class_length(text)),
            '\\' if text.starts_with(['p', 'P']) => {
                let name = text.get(1..).filter(|name| name.starts_with('{'));
                let length = name.and_then(|name| name.find('}')).map_or(0, |end| end + 1);
                (UNICODE_CLASS, 1 + length)
            }
            '\\' => (1, text.chars().next().map_or(0, char::len_utf8)),
            '*' | '+' | '?' | '|' => (0, 0),
            _ => (1, 0),
        };
        rest = text.get(skipped..).unwrap_or_default().chars();
        last = match character {
            '*' | '+' | '?' => last,
            '{' => last.saturating_add(size),
            _ => size,
        };
        if let Some(group) = groups.last_mut() {
            *group = group.saturating_add(size);
        }
    }
    groups.into_iter().fold(0, u64::saturating_add)
}

/// Returns the upper bound of a repetition, and the length up to its end. A bound that is open or
/// malformed counts as its lower one, or as none.
fn bounds(text: &str) -> (u64, usize) {
    let Some((bounds, _)) = text.split_once('}') else { return (1, 0) };
    let numbers = bounds.split(',').filter_map(|bound| bound.trim().parse::<u64>().ok());
    (numbers.max().unwrap_or(1), bounds.len() + 1)
}

fn class_length(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|(_, character)| {
        let ends = *character == ']' && !is_escaped;
        is_escaped = *character == '\\' && !is_escaped;
        ends
    });
    end.map_or(0, |(end, _)| end + 1)
}

fn class_size(text: &str) -> u64 {
    let class = text.get(..class_length(text)).unwrap_or_default();
    if class.contains("\\p") || class.contains("\\P") { UNICODE_CLASS } else { 1 }
}

/// Returns false only if a regular expression has neither look-around nor another construct for
/// which the engine goes back.
pub(super) fn needs_backtracking(pattern: &str) -> bool {
    let mut rest = pattern;
    while let Some(start) = rest.find("(?") {
        rest = rest.get(start + 2..).unwrap_or_default();
        let is_name = |c: char| c.is_alphabetic() || c == '_';
        let is_plain = match rest.strip_prefix("P<").or_else(|| rest.strip_prefix('<')) {
            Some(name) => name.starts_with(is_name),
            None => rest.starts_with([':', 'i', 'm', 's', 'x', 'u', '-']),
        };
        if !is_plain {
            return true;
        }
    }
    let possessive = ["*+", "++", "?+", "}+"];
    let escapes = pattern.split('\\').skip(1);
    possessive.iter().any(|one| pattern.contains(one))
        || escapes
            .into_iter()
            .any(|escape| escape.starts_with(|c: char| c.is_ascii_digit() || "kgKGZ".contains(c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_writes_repetitions_out() {
        for (pattern, expected) in [
            ("abc", 3),
            ("^[0-9a-f]{8}-[0-9a-f]{4}$", 15),
            ("(a|bc){3}", 9),
            ("((ab){10}c){10,100}d", 2_101),
            ("[ab]*a[ab]{15000}[x-z]", 15_003),
            ("[^\\]]{2}\\{3}", 5),
            ("\\p{L}{40}", 12_000),
            ("a{2}{3}", 6),
            ("a{", 1),
            ("a{,}b{2,}", 3),
            ("(a)b)", 3),
        ] {
            assert_eq!(size(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn constructs_for_which_the_engine_goes_back_are_found() {
        for plain in ["a", "(?:a)", "(?i)a", "(?<a>b)", "(?P<a_b>c)", "a+b?", "\\d\\+", "a{2}"] {
            assert!(!needs_backtracking(plain), "{plain}");
        }
        for hard in
            ["(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(a)\\1", "(?P=a)", "a++", "a{2}+"]
        {
            assert!(needs_backtracking(hard), "{hard}");
        }
    }
}
