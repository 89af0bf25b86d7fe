//! The benchmarks: ours beside the floor and beside rivals, how cost grows, and what building takes. Each part of
//! `docs/benchmarks.md` that stands between two marks is written here.

mod builds;
mod chart;
mod growth;
mod operations;
mod rivals;
mod subject;
mod waiting;
mod whole;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::Command;
use std::time::Instant;

use crate::Result;
use crate::page;
use crate::run::output;

const PAGE: &str = "docs/benchmarks.md";

/// How much is measured.
pub struct Extent {
    /// How often each measurement is done, with the others in between.
    rounds: usize,
    /// How long one takes, after the warm-up.
    seconds: f64,
    /// Whether the slow rivals take part.
    all: bool,
}

/// A part of the page, as Markdown, and the targets it speaks of.
#[derive(Default)]
struct Part {
    text: String,
    targets: Vec<Target>,
}

/// What is to be reached.
struct Target {
    what: String,
    wanted: f64,
    /// The median; and the lowest and the highest, if it was measured more than once.
    measured: f64,
    spread: Option<(f64, f64)>,
    at_least: bool,
    unit: &'static str,
}

impl Target {
    fn is_met(&self) -> bool {
        if self.at_least { self.measured >= self.wanted } else { self.measured <= self.wanted }
    }

    fn row(&self) -> String {
        let Self { what, wanted, measured, spread, at_least, unit } = self;
        let sign = if *at_least { "≥" } else { "≤" };
        let spread =
            spread.map_or_else(String::new, |(low, high)| format!(" ({low:.2} to {high:.2})"));
        let met = if self.is_met() { "met" } else { "**missed**" };
        format!("| {what} | {sign} {wanted} {unit} | {measured:.2} {unit}{spread} | {met} |\n")
    }
}

type Measure = fn(&Extent) -> Result<Part>;

const PARTS: [(&str, Measure); 6] = [
    ("whole", whole::measure),
    ("rivals", rivals::measure),
    ("operations", operations::measure),
    ("growth", growth::measure),
    ("waiting", waiting::measure),
    ("builds", builds::measure),
];

pub fn run(args: &[String]) -> Result {
    // Many short rounds: a neighbour that is busy for a while spoils some of them, and the median not.
    let mut extent = Extent { rounds: 9, seconds: 0.5, all: false };
    let (mut wanted, mut write) = (Vec::new(), false);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut number = || {
            let number = rest.next().and_then(|value| value.parse::<f64>().ok());
            number.filter(|n| *n > 0.0).ok_or_else(|| format!("`{arg}` takes a number"))
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
            other => return Err(format!("there is no part or option {other:?}").into()),
        }
    }
    let command = format!("cargo xtask bench {}", args.join(" "));
    let (mut missed, mut all) = (Vec::new(), 0);
    for (name, measure) in PARTS {
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        let started = Instant::now();
        println!("\nbench: {name}");
        let Part { mut text, targets } = measure(&extent)?;
        if !targets.is_empty() {
            text.push_str("\n| target | wanted | measured | |\n|---|---|---|---|\n");
            text.extend(targets.iter().map(Target::row));
        }
        println!("\n{text}\n  ({:.0} s)", started.elapsed().as_secs_f64());
        if write {
            let text = format!("{}\n{text}", provenance(command.trim())?);
            page::replace(PAGE, name, &text)?;
        }
        all += targets.len();
        missed.extend(targets.into_iter().filter(|target| !target.is_met()));
    }
    println!("\nbench: {} of {all} targets met", all - missed.len());
    for target in &missed {
        print!("  {}", target.row());
    }
    Ok(())
}

/// By which command, when and on what a part was measured.
fn provenance(command: &str) -> Result<String> {
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
    let mut text = String::new();
    writeln!(
        text,
        "`{command}`, {date}: {rustc}, {kernel}, {processors} × {} {sha} SHA instructions; server and load on one core each.",
        field("model name"),
    )?;
    Ok(text)
}

/// Shows more of a line that is not yet at its end.
fn show(text: &str) -> Result {
    print!("{text}");
    Ok(std::io::stdout().flush()?)
}

/// Of an odd number of values, the one in the middle; of an even number, the higher of the two. 0 if there is none.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
