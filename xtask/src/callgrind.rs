//! Instructions of a process, counted by callgrind: a number that noise does not touch.

use std::fs;
use std::path::PathBuf;

use crate::Result;
use crate::run::{scratch, there};

/// What was counted.
#[derive(Clone, Copy)]
pub struct Counts {
    pub all: i64,
    /// Of these, what says little about a processor: SHA-256, which callgrind's has no instructions for, and memory that is
    /// filled, which it counts byte by byte.
    pub odd: i64,
}

/// The command in front of a program that is to be counted, and where the counts will be once it has ended.
pub fn counting() -> Result<(Vec<String>, PathBuf)> {
    if !there("valgrind") {
        return Err("counting instructions needs valgrind: install it, for example by `apt-get install valgrind`".into());
    }
    let counts = scratch("instructions")?.join("counts");
    let tool = ["valgrind", "--tool=callgrind", "--quiet", "--compress-strings=no"];
    let mut command: Vec<String> = tool.map(str::to_owned).into();
    command.push(format!("--callgrind-out-file={}", counts.display()));
    Ok((command, counts))
}

/// Reads the counts, and removes them.
pub fn counts(at: &PathBuf) -> Result<Counts> {
    let text = fs::read_to_string(at)?;
    fs::remove_file(at)?;
    let mut counts = Counts { all: 0, odd: 0 };
    let (mut is_odd, mut is_of_another) = (false, false);
    for line in text.lines() {
        if let Some(function) = line.strip_prefix("fn=") {
            is_odd = function.starts_with("__memset")
                || (function.contains("sha2::") && function.contains("compress"));
        } else if line.starts_with("calls=") {
            // The next line has what the function spent that is called here.
            is_of_another = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            && !std::mem::take(&mut is_of_another)
        {
            let cost: i64 = line.split(' ').nth(1).ok_or("callgrind wrote no cost")?.parse()?;
            counts.all += cost;
            counts.odd += if is_odd { cost } else { 0 };
        }
    }
    Ok(counts)
}
