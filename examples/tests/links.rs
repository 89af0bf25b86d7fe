//! Checks the links of the repository's Markdown files: files, headings and chapters of the guide.
//! The guide is read on docs.rs and in the repository, so its links are absolute.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const CHAPTER: &str = "https://docs.rs/mrtr/latest/mrtr/guide/";
const FILES: [&str; 2] =
    ["https://github.com/mrtr-rs/mrtr/blob/main/", "https://github.com/mrtr-rs/mrtr/tree/main/"];

#[test]
fn every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let guide = root.join("crates/mrtr/src/guide");
    let mut wrong = Vec::new();
    for page in pages(root) {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let is_guide = page.starts_with(&guide);
            let file = if let Some(chapter) = target.strip_prefix(CHAPTER) {
                match chapter.strip_suffix("/index.html") {
                    Some(chapter) => guide.join(format!("{chapter}.md")),
                    None => guide.clone(),
                }
            } else if let Some(path) = FILES.iter().find_map(|start| target.strip_prefix(start)) {
                root.join(path)
            } else if target.contains("://") {
                continue;
            } else if target.is_empty() {
                page.clone()
            } else if is_guide {
                wrong.push(format!("{}: {link} is relative", page.display()));
                continue;
            } else {
                page.parent().unwrap().join(target)
            };
            if !file.exists() || !(anchor.is_empty() || anchors(&file).contains(anchor)) {
                wrong.push(format!("{}: {link} leads nowhere", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_path_on_the_map_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let map = fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    let paths: Vec<_> = map.split('`').filter(|part| part.starts_with("crates/")).collect();
    assert!(paths.len() > 20);
    let missing: Vec<_> = paths.iter().filter(|path| !root.join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The Markdown files that people read: at the root, of the crates, and below `docs` and the guide.
fn pages(root: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<_> =
        ["", "docs", "docs/adr", "examples", "crates/mrtr/src/guide"].map(Into::into).to_vec();
    for folder in fs::read_dir(root.join("crates")).unwrap() {
        folders.push(folder.unwrap().path());
    }
    let files = folders.iter().flat_map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let files = files.map(|file| file.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|own| own == "md")).collect()
}

/// The targets of inline links, outside code blocks.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split("](").skip(1).filter_map(|rest| rest.split(')').next()))
}

/// The anchors of a file's headings, which GitHub and rustdoc spell alike.
fn anchors(file: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let prose = text.split("```").step_by(2).flat_map(str::lines);
    let headings = prose.filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    headings.map(anchor).collect()
}
