//! Counts the instructions of a process with callgrind.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::needs::{VALGRIND, require};
use crate::run::scratch;

/// The instructions of a process.
#[derive(Clone, Copy)]
pub struct Counts {
    pub all: i64,
    /// The share of SHA-256. Processors have instructions for it that callgrind does not support.
    pub sha: i64,
}

/// Fails if valgrind is missing and cannot be installed.
pub fn check() -> Result {
    require(&[VALGRIND])
}

/// Returns the command that precedes the program, and the file of the counts.
pub fn counting() -> Result<(Vec<String>, PathBuf)> {
    let counts = scratch("instructions")?.join("counts");
    // Callgrind counts `rep movsb` and similar instructions once per byte.
    let tool = ["env", "GLIBC_TUNABLES=glibc.cpu.hwcaps=-ERMS", "valgrind", "--tool=callgrind"];
    let mut command: Vec<String> = tool.map(str::to_owned).into();
    command.extend(["--quiet", "--compress-strings=no"].map(str::to_owned));
    command.push(format!("--callgrind-out-file={}", counts.display()));
    Ok((command, counts))
}

/// Reads the counts, and removes their file.
pub fn counts(at: &Path) -> Result<Counts> {
    let text = fs::read_to_string(at)?;
    fs::remove_file(at)?;
    let mut counts = Counts { all: 0, sha: 0 };
    let mut is_sha = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(function) = line.strip_prefix("fn=") {
            is_sha = function.contains("sha2::") && function.contains("compress");
        } else if line.starts_with("calls=") {
            // The next line is the cost of the called function.
            lines.next();
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost: i64 = line.split(' ').nth(1).ok_or("callgrind wrote no cost")?.parse()?;
            counts.all += cost;
            counts.sha += if is_sha { cost } else { 0 };
        }
    }
    Ok(counts)
}
