//! The tables of `docs/benchmarks.md`, generated from the data in `docs/benchmarks/`.

use std::collections::BTreeSet;
use std::fs;

use super::data::{DIRECTORY, RUNS, Row, Sheet, TARGETS};
use super::growth;
use crate::Result;
use crate::page;
use crate::run::root;

const PAGE: &str = "docs/benchmarks.md";

type Section = fn() -> Result<String>;

/// The sections of the page between marks, each with its generator.
const SECTIONS: [(&str, Section); 4] = [
    ("targets", targets),
    ("throughput", throughput),
    ("instructions", instructions),
    ("gateways", gateways),
];

/// Writes all sections of the page.
pub fn write() -> Result {
    for (file, chart) in growth::charts(&Sheet::read("growth")?)? {
        fs::write(root().join(DIRECTORY).join(file), chart)?;
    }
    SECTIONS.iter().try_for_each(|(name, section)| page::replace(PAGE, name, &section()?))
}

/// Returns one line for each command, date and machine.
fn runs() -> Result<String> {
    let sheet = Sheet::read(RUNS)?;
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for row in sheet.rows() {
        let [command, date, rustc, kernel, processor] =
            ["command", "date", "rustc", "kernel", "processor"].map(|column| row.get(column));
        let line = format!("`{command}`, {date}: {rustc}, {kernel}, {processor}.");
        match lines.iter_mut().find(|(other, _)| *other == line) {
            Some((_, parts)) => parts.push(row.get("part")),
            None => lines.push((line, vec![row.get("part")])),
        }
    }
    let lines = lines.into_iter().map(|(line, parts)| format!("{}: {line}", parts.join(", ")));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

fn targets() -> Result<String> {
    let mut table = Table::new(&["Target", "Wanted", "Measured", "Outcome"], 0);
    for row in Sheet::read(TARGETS)?.rows() {
        let [target, bound, wanted, measured, low, high, unit, outcome] =
            ["target", "bound", "wanted", "measured", "lowest", "highest", "unit", "outcome"]
                .map(|column| row.get(column));
        let spread = if low.is_empty() { String::new() } else { format!(" ({low} to {high})") };
        let outcome = if outcome == "met" { outcome } else { "**missed**" };
        let (wanted, measured) =
            (format!("{bound} {wanted} {unit}"), format!("{measured} {unit}{spread}"));
        table.row(&[target, wanted.trim(), measured.trim(), outcome]);
    }
    Ok(format!("{}\n\n{}", runs()?, table.text))
}

fn throughput() -> Result<String> {
    crossed("rivals", |row| format!("{} ({})", row.get("per second"), row.get("ratio")))
}

fn gateways() -> Result<String> {
    crossed("gateway", |row| format!("{} ({})", row.get("p50, µs"), row.get("ratio of p50")))
}

fn instructions() -> Result<String> {
    crossed("whole", |row| format!("{} ({})", row.get("others"), row.get("ratio to bare axum")))
}

/// Returns a table with a row for each server and a column for each workload.
fn crossed(part: &str, cell: fn(Row<'_>) -> String) -> Result<String> {
    let sheet = Sheet::read(part)?;
    let in_order = |column: &'static str| {
        let mut seen = BTreeSet::new();
        sheet
            .rows()
            .map(|row| row.get(column))
            .filter(|text| seen.insert(*text))
            .collect::<Vec<_>>()
    };
    let (workloads, servers) = (in_order("workload"), in_order("server"));
    let titles: Vec<_> = workloads.iter().map(|title| shortened(title)).collect();
    let titles: Vec<_> = titles.iter().map(String::as_str).collect();
    let mut table = Table::new(&[&["server"], &titles[..]].concat(), titles.len());
    for server in servers {
        let at = |workload: &&str| {
            let is_it =
                |row: &Row<'_>| row.get("server") == server && row.get("workload") == *workload;
            sheet.rows().find(is_it).map_or_else(String::new, cell)
        };
        let cells: Vec<_> = workloads.iter().map(at).collect();
        let cells: Vec<_> = cells.iter().map(String::as_str).collect();
        table.row(&[&[server], &cells[..]].concat());
    }
    Ok(table.text)
}

/// Shortens the title of a workload for a column head. 32 connections are the default.
fn shortened(title: &str) -> String {
    let title = title.strip_suffix(", 32 connections").unwrap_or(title);
    let title = title.strip_suffix(", 32 in flight").unwrap_or(title);
    let title = title.strip_suffix(" connections").unwrap_or(title);
    let title = ["a call of ", "a list of ", "an argument of "]
        .iter()
        .find_map(|start| title.strip_prefix(start))
        .unwrap_or(title);
    title.to_owned()
}

/// A table in Markdown.
struct Table {
    text: String,
}

impl Table {
    /// The last `numbers` columns hold numbers.
    fn new(columns: &[&str], numbers: usize) -> Self {
        let rule = "---|".repeat(columns.len() - numbers) + &"--:|".repeat(numbers);
        Self { text: format!("| {} |\n|{rule}\n", columns.join(" | ")) }
    }

    fn row(&mut self, cells: &[&str]) {
        self.text.push_str("| ");
        self.text.push_str(&cells.join(" | "));
        self.text.push_str(" |\n");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{DIRECTORY, PAGE, SECTIONS, Sheet, growth};
    use crate::page;
    use crate::run::root;

    /// Returns what `column` has in the row of a sheet that has these cells.
    fn figure(sheet: &str, cells: &[(&str, &str)], column: &str) -> String {
        let sheet = Sheet::read(sheet).unwrap();
        let mut rows = sheet.rows();
        let found = rows.find(|row| cells.iter().all(|(column, text)| row.get(column) == *text));
        found.unwrap_or_else(|| panic!("{cells:?}")).get(column).to_owned()
    }

    /// Rounds a number to hundreds, or to tens below a thousand.
    fn rounded(number: &str) -> String {
        let number: u64 = number.parse().unwrap();
        let unit = if number < 1000 { 10 } else { 100 };
        let rounded = (number + unit / 2) / unit * unit;
        match rounded / 1000 {
            0 => rounded.to_string(),
            thousands => format!("{thousands},{:03}", rounded % 1000),
        }
    }

    #[test]
    fn figures_of_the_readme_are_those_of_the_data() {
        let (best, shipped) = ("rmcp 3.11.0, best settings", "rmcp 3.11.0, as shipped");
        let per_second = |workload: &str, server: &str| {
            let cells = [("workload", workload), ("server", server)];
            rounded(&figure("rivals", &cells, "per second"))
        };
        let rounds = |server| per_second("a call of two rounds, 32 connections", server);
        let stdio = |server| per_second("echo over standard streams, 32 in flight", server);
        let instructions = |server| {
            let cells = [("workload", "a call of two rounds"), ("server", server)];
            figure("whole", &cells, "ratio to bare axum")
        };
        let builds = |server: &str| {
            let program = format!("server, HTTP and stdio: {server}");
            ["crates", "clean release build, s", "stripped, MB"]
                .map(|column| figure("builds", &[("program", &program)], column))
        };
        let (ours, theirs) = (builds("mrtr"), builds("rmcp 3.11.0"));
        let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
        for cells in [
            format!(
                "{} ({} with cargo's default profile; bare axum: {}) | {} with its best settings, {} \
                 as shipped",
                rounds("mrtr, served"),
                rounds("mrtr, as in the README"),
                rounds("bare axum"),
                rounds(best),
                rounds(shipped)
            ),
            format!(
                "{} × ({} × with cargo's default profile) | {} × with its best settings",
                instructions("mrtr, served"),
                instructions("mrtr, as in the README"),
                instructions(best)
            ),
            format!("{} | {}", stdio("mrtr, served"), stdio(best)),
            format!(
                "{} crates, built in {} s, {} MB | {} crates, {} s, {} MB",
                ours[0], ours[1], ours[2], theirs[0], theirs[1], theirs[2]
            ),
        ] {
            assert!(readme.contains(&format!(" | {cells} | ")), "README.md lacks: {cells}");
        }
    }

    #[test]
    fn the_page_is_generated_from_the_data() {
        for (name, section) in SECTIONS {
            let [_, written, _] = page::split(PAGE, name).unwrap();
            let made = section().unwrap();
            assert!(written.trim() == made.trim(), "{name}: run `cargo xtask bench --render`");
        }
        for (file, chart) in growth::charts(&Sheet::read("growth").unwrap()).unwrap() {
            let path = root().join(DIRECTORY).join(&file);
            let written = fs::read_to_string(path).unwrap();
            assert!(written == chart, "{file}: run `cargo xtask bench --render`");
        }
    }
}
