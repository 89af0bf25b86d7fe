//! Benchmarks: mrtr compared with a bare server and with other SDKs, the growth of costs, and the
//! cost of building.
//!
//! With `--write`, the figures are written to `docs/benchmarks/`, and from there to
//! `docs/benchmarks.md`.

mod builds;
mod chart;
mod data;
mod gateway;
mod growth;
mod operations;
mod report;
mod rivals;
mod subject;
mod tasks;
mod waiting;
mod whole;

use std::fs;
use std::io::Write as _;
use std::process::Command;
use std::time::Instant;

use data::Sheet;

use crate::Result;
use crate::run::output;

/// The effort of a run.
pub struct Extent {
    /// Number of repetitions of each measurement, interleaved with the others.
    rounds: usize,
    /// The duration of one measurement, after the warm-up.
    seconds: f64,
    /// Also measures the slow SDKs.
    all: bool,
}

/// The figures of one part, and its targets.
struct Part {
    sheet: Sheet,
    targets: Vec<Target>,
}

/// A bound on a figure.
struct Target {
    what: String,
    wanted: f64,
    /// The median.
    measured: f64,
    /// The lowest and the highest value, if there are several measurements.
    spread: Option<(f64, f64)>,
    at_least: bool,
    unit: &'static str,
}

impl Target {
    fn is_met(&self) -> bool {
        if self.at_least { self.measured >= self.wanted } else { self.measured <= self.wanted }
    }

    /// The row in `targets.csv`.
    fn row(&self, part: &str) -> Vec<String> {
        let Self { what, wanted, measured, spread, at_least, unit } = self;
        let bound = if *at_least { "≥" } else { "≤" };
        let [low, high] = spread.map_or_else(<[String; 2]>::default, |(low, high)| {
            [low, high].map(|n| format!("{n:.2}"))
        });
        let outcome = if self.is_met() { "met" } else { "missed" };
        let (wanted, measured) = (wanted.to_string(), format!("{measured:.2}"));
        vec![
            part.to_owned(),
            what.clone(),
            bound.to_owned(),
            wanted,
            measured,
            low,
            high,
            (*unit).to_owned(),
            outcome.to_owned(),
        ]
    }
}

type Measure = fn(&Extent) -> Result<Part>;

const PARTS: [(&str, Measure); 8] = [
    ("whole", whole::measure),
    ("rivals", rivals::measure),
    ("operations", operations::measure),
    ("growth", growth::measure),
    ("waiting", waiting::measure),
    ("tasks", tasks::measure),
    ("gateway", gateway::measure),
    ("builds", builds::measure),
];

pub fn run(args: &[String]) -> Result {
    if args == ["--render"] {
        return report::write();
    }
    // Many short rounds: load from elsewhere spoils some of them, but not the median.
    let mut extent = Extent { rounds: 9, seconds: 0.5, all: false };
    let (mut wanted, mut write) = (Vec::new(), false);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut number = || {
            let number = rest.next().and_then(|value| value.parse::<f64>().ok());
            number.filter(|n| *n > 0.0).ok_or_else(|| format!("`{arg}` takes a positive number"))
        };
        match arg.as_str() {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "few rounds"
            )]
            "--rounds" => extent.rounds = number()?.ceil() as usize,
            "--seconds" => extent.seconds = number()?,
            "--all" => extent.all = true,
            "--write" => write = true,
            name if PARTS.iter().any(|(part, _)| *part == name) => wanted.push(name),
            other => return Err(format!("unknown part or option {other:?}").into()),
        }
    }
    let command = format!("cargo xtask bench {}", args.join(" "));
    let mut outcomes = Sheet::new(&data::TARGETS_COLUMNS);
    for (name, measure) in PARTS {
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        let started = Instant::now();
        println!("\nbench: {name}");
        let Part { sheet, targets } = measure(&extent)?;
        println!("\n{sheet}\n  ({:.0} s)", started.elapsed().as_secs_f64());
        let rows: Vec<_> = targets.iter().map(|target| target.row(name)).collect();
        if write {
            sheet.write(name)?;
            data::replace(data::TARGETS, name, rows.clone())?;
            data::replace(data::RUNS, name, vec![provenance(name, command.trim())?])?;
        }
        for row in rows {
            outcomes.push(row);
        }
    }
    if write {
        report::write()?;
    }
    let met = outcomes.rows().filter(|row| row.get("outcome") == "met").count();
    println!("\n{outcomes}\nbench: {met} of {} targets met", outcomes.rows().count());
    Ok(())
}

/// The row in `runs.csv`: the command, the date and the machine of a part.
fn provenance(part: &str, command: &str) -> Result<Vec<String>> {
    let first = |text: String| text.lines().next().unwrap_or_default().trim().to_owned();
    let date = first(output(Command::new("date").args(["-u", "+%Y-%m-%d"]))?);
    let rustc = first(output(Command::new("rustc").arg("--version"))?);
    let kernel = first(output(Command::new("uname").args(["-sr"]))?);
    let infos = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processors = infos.lines().filter(|line| line.starts_with("processor")).count();
    let field = |name: &str| {
        let line = infos.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or("", |(_, value)| value.trim()).to_owned()
    };
    let flags = field("flags");
    let has = |flag: &str| flags.split(' ').any(|own| own == flag);
    let sha = if has("sha_ni") { "with" } else { "without" };
    let processor = format!("{processors} × {} {sha} SHA instructions", field("model name"));
    Ok(vec![part.to_owned(), command.to_owned(), date, rustc, kernel, processor])
}

/// Prints a part of a line and flushes it.
fn show(text: &str) -> Result {
    print!("{text}");
    Ok(std::io::stdout().flush()?)
}

/// Returns the middle value of an odd number of values, the higher middle value of an even number,
/// and 0 for no values.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
