//! The figures, as CSV files in `docs/benchmarks/`: one for each part, one for all targets and one
//! for all runs.

use std::fmt;
use std::path::PathBuf;

use crate::Result;
use crate::run::root;

/// The directory of data and charts.
pub const DIRECTORY: &str = "docs/benchmarks";

/// The targets of all parts.
pub const TARGETS: &str = "targets";
pub const TARGETS_COLUMNS: [&str; 9] =
    ["part", "target", "bound", "wanted", "measured", "lowest", "highest", "unit", "outcome"];

/// The provenance of each part: command, date and machine.
pub const RUNS: &str = "runs";

/// A table of texts, as printed.
pub struct Sheet {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Sheet {
    pub fn new(columns: &[&str]) -> Self {
        Self { columns: columns.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    pub fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    pub fn read(name: &str) -> Result<Self> {
        let mut reader =
            csv::Reader::from_path(path(name)).map_err(|e| format!("{name}.csv: {e}"))?;
        let texts = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect();
        let columns = texts(reader.headers()?);
        let rows = reader.records().map(|record| Ok(texts(&record?)));
        Ok(Self { columns, rows: rows.collect::<csv::Result<_>>()? })
    }

    pub fn write(&self, name: &str) -> Result {
        let mut writer = csv::Writer::from_path(path(name))?;
        writer.write_record(&self.columns)?;
        self.rows.iter().try_for_each(|row| writer.write_record(row))?;
        Ok(writer.flush()?)
    }

    /// Returns the rows, with access by column.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|row| Row { columns: &self.columns, row })
    }
}

/// One row of a sheet.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    columns: &'a [String],
    row: &'a [String],
}

impl<'a> Row<'a> {
    /// Returns the text in a column, or an empty text if there is no such column.
    pub fn get(&self, column: &str) -> &'a str {
        let at = self.columns.iter().position(|other| other == column);
        at.and_then(|at| self.row.get(at)).map_or("", String::as_str)
    }
}

/// Formats the sheet as an aligned table.
impl fmt::Display for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = || std::iter::once(&self.columns).chain(&self.rows);
        let width = |at: usize| {
            lines().filter_map(|line| line.get(at)).map(|text| text.chars().count()).max()
        };
        let widths: Vec<_> = (0..self.columns.len()).map(|at| width(at).unwrap_or(0)).collect();
        for line in lines() {
            let cells = line.iter().zip(&widths).map(|(text, width)| format!("  {text:<width$}"));
            writeln!(f, "{}", cells.collect::<String>().trim_end())?;
        }
        Ok(())
    }
}

/// Replaces the rows of one part in a sheet of all parts.
pub fn replace(name: &str, part: &str, rows: Vec<Vec<String>>) -> Result {
    let mut sheet = Sheet::read(name)?;
    let is_part = |row: &Vec<String>| row.first().is_some_and(|first| first == part);
    let at = sheet.rows.iter().position(is_part).unwrap_or(sheet.rows.len());
    sheet.rows.retain(|row| !is_part(row));
    sheet.rows.splice(at..at, rows);
    sheet.write(name)
}

fn path(name: &str) -> PathBuf {
    root().join(DIRECTORY).join(format!("{name}.csv"))
}
