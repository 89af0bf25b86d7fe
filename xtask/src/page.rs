//! Pages with generated parts, each between two marks.

use std::fs;

use crate::Result;
use crate::run::root;

fn marks(name: &str) -> [String; 2] {
    ["begin", "end"].map(|end| format!("<!-- {name}: {end} -->"))
}

/// Splits a page into the text before a part, the part, and the text after it.
pub fn split(page: &str, name: &str) -> Result<[String; 3]> {
    let text = fs::read_to_string(root().join(page))?;
    let [begin, end] = marks(name);
    let lacks = || format!("{page}: missing marks of the part {name:?}");
    let (before, rest) = text.split_once(&begin).ok_or_else(lacks)?;
    let (part, after) = rest.split_once(&end).ok_or_else(lacks)?;
    Ok([before, part, after].map(str::to_owned))
}

/// Replaces a part of a page.
pub fn replace(page: &str, name: &str, part: &str) -> Result {
    let [before, _, after] = split(page, name)?;
    let [begin, end] = marks(name);
    fs::write(root().join(page), format!("{before}{begin}\n{}\n\n{end}{after}", part.trim()))?;
    Ok(())
}
