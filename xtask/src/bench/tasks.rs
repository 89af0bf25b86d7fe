//! Tasks: steps beside bare loops with the same rows, recovery, answers, and a million that wait.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::Value;

use super::subject::{built, check};
use super::{Extent, Part, Sheet, Target, median, show};
use crate::Result;
use crate::run::{build, output, scratch};

/// The lease of the replicas that are killed, in seconds: the default.
const LEASE: f64 = 10.0;

/// The number of tasks that wait.
const WAITING: &str = "1000000";

/// The names of measurements with several rounds, in which one program runs steps.
const POSTGRES: &str = "PostgreSQL, mrtr";
const POSTGRES_BARE: &str = "PostgreSQL, bare loop";
const DBOS: &str = "PostgreSQL, dbos 0.5.0";
const SQLITE: &str = "SQLite, mrtr";
const SQLITE_BARE: &str = "SQLite, bare loop";
const PROGRAMS: [&str; 5] = [POSTGRES, POSTGRES_BARE, DBOS, SQLITE, SQLITE_BARE];

/// The numbers of tasks that run steps at the same time.
const TASKS: [usize; 2] = [64, 1];

pub fn measure(extent: &Extent) -> Result<Part> {
    check()?;
    let database = Database::start()?;
    let programs = Programs {
        tasks: built("tasks")?.join("tasks"),
        dbos: built("dbos")?.join("dbos-peer"),
        folder: database.folder.clone(),
    };
    let mut figures = Figures {
        sheet: Sheet::new(&["what", "at the same time", "metric", "median", "lowest", "highest"]),
        targets: Vec::new(),
    };
    for name in ["steps", "killed", "drained", "answers", "one", "many"] {
        programs
            .tasks("create", &[("database", &programs.database("postgres")), ("name", name)])?;
    }
    steps(&programs, extent, &mut figures)?;
    recovery(&programs, &mut figures)?;
    answers(&programs, &mut figures)?;
    waiting(&programs, extent, &mut figures)?;
    let Figures { sheet, targets } = figures;
    Ok(Part { sheet, targets })
}

/// A PostgreSQL server on one processor, which ends with this value.
struct Database {
    process: Child,
    input: Option<ChildStdin>,
    folder: String,
}

impl Database {
    fn start() -> Result<Self> {
        let program = build()?.join("database");
        let mut command = Command::new("taskset");
        command.args(["-c", "1"]).arg(program).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let input = process.stdin.take();
        let mut line = String::new();
        if let Some(out) = process.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let folder = line.strip_prefix("host=").and_then(|line| line.split(' ').next());
        let folder = folder.ok_or("PostgreSQL did not start: is it installed?")?.to_owned();
        Ok(Self { process, input, folder })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

/// The programs, which run on the other processor.
struct Programs {
    tasks: PathBuf,
    dbos: PathBuf,
    /// The folder of the server's socket.
    folder: String,
}

impl Programs {
    /// Returns the settings of connections to a database.
    fn database(&self, name: &str) -> String {
        format!("host={} user=postgres dbname={name}", self.folder)
    }

    fn tasks(&self, what: &str, args: &[(&str, &str)]) -> Result<Value> {
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(&self.tasks).arg(what);
        for (name, value) in args {
            command.arg(format!("--{name}")).arg(value);
        }
        Ok(serde_json::from_str(&output(&mut command)?)?)
    }

    /// Runs steps in one program.
    fn steps(&self, program: &str, tasks: usize, body: usize, seconds: f64) -> Result<Value> {
        let [tasks, body, seconds] = [tasks.to_string(), body.to_string(), seconds.to_string()];
        let mut args = vec![("tasks", &*tasks), ("seconds", &*seconds), ("body", &*body)];
        if program == DBOS {
            let socket = self.folder.replace('/', "%2F");
            let url = format!("postgres://postgres@{socket}/dbos");
            let mut command = Command::new("taskset");
            command.args(["-c", "0"]).arg(&self.dbos).args([&url, &tasks, &seconds]);
            return Ok(serde_json::from_str(&output(&mut command)?)?);
        }
        let what = if [POSTGRES, SQLITE].contains(&program) { "steps" } else { "bare" };
        if [POSTGRES, POSTGRES_BARE].contains(&program) {
            let database = self.database("steps");
            args.push(("database", &database));
            return self.tasks(what, &args);
        }
        // On the disk that has the database, too.
        let folder = scratch("sqlite")?;
        std::fs::remove_dir_all(&folder)?;
        let file = scratch("sqlite")?.join("tasks.db").display().to_string();
        args.push(("file", &file));
        self.tasks(if what == "bare" { "bare-sqlite" } else { what }, &args)
    }
}

/// The rows of the data file, and the targets.
struct Figures {
    sheet: Sheet,
    targets: Vec<Target>,
}

impl Figures {
    /// Adds a row, and returns the median with the lowest and the highest value.
    fn row(
        &mut self,
        what: &str,
        tasks: usize,
        metric: &str,
        values: &mut [f64],
    ) -> (f64, f64, f64) {
        let middle = median(values);
        let low = values.first().copied().unwrap_or_default();
        let high = values.last().copied().unwrap_or_default();
        let digits = if middle < 10.0 { 2 } else { usize::from(middle < 1000.0) };
        let [m, l, h] = [middle, low, high].map(|value| format!("{value:.digits$}"));
        let tasks = if tasks == 0 { String::new() } else { tasks.to_string() };
        self.sheet.push(vec![what.to_owned(), tasks, metric.to_owned(), m, l, h]);
        (middle, low, high)
    }

    fn target(
        &mut self,
        what: &str,
        (measured, low, high): (f64, f64, f64),
        (at_least, wanted): (bool, f64),
        unit: &'static str,
    ) {
        let spread = (low < high).then_some((low, high));
        let what = format!("tasks: {what}");
        self.targets.push(Target { what, wanted, measured, spread, at_least, unit });
    }
}

const AT_LEAST: bool = true;
const AT_MOST: bool = false;

fn number(value: &Value, name: &str) -> f64 {
    value.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// Steps of mrtr, of dbos, and of bare loops, in turns.
fn steps(programs: &Programs, extent: &Extent, figures: &mut Figures) -> Result {
    let seconds = extent.seconds * 2.0;
    // The first measurement tells the size of an entry, and warms up.
    let first = programs.steps(POSTGRES, 1, 0, 0.5)?;
    let body = first.get("body").and_then(Value::as_u64).ok_or("an entry has no size")?;
    let body = usize::try_from(body)?;
    let mut samples = vec![Vec::new(); PROGRAMS.len() * TASKS.len()];
    for round in 1..=extent.rounds {
        show(&format!("  {round}/{} ", extent.rounds))?;
        let measurements = TASKS.iter().flat_map(|tasks| PROGRAMS.map(|program| (program, *tasks)));
        for ((program, tasks), samples) in measurements.zip(&mut samples) {
            let sample = programs.steps(program, tasks, body, seconds)?;
            show(&format!(" {:.0}", number(&sample, "per_second")))?;
            samples.push(sample);
        }
        println!();
    }
    figures.row("an entry of a journal", 0, "bytes", &mut [number(&first, "body")]);
    let at = |program: &str, tasks: usize| {
        let index = |all: &[&str], one: &str| all.iter().position(|other| *other == one);
        let first = TASKS.iter().position(|other| *other == tasks).unwrap_or_default();
        let at = first * PROGRAMS.len() + index(&PROGRAMS, program).unwrap_or_default();
        samples.get(at).map_or(&[][..], Vec::as_slice)
    };
    let values = |program, tasks, metric: &str| -> Vec<f64> {
        at(program, tasks).iter().map(|sample| number(sample, metric)).collect()
    };
    for tasks in TASKS {
        for program in PROGRAMS {
            let (label, metric, scale) = ("steps per second", "per_second", 1.0);
            for (label, metric, scale) in [(label, metric, scale), ("commit, p50, ms", "p50", 1e-3)]
            {
                let mut all = values(program, tasks, metric);
                for value in &mut all {
                    *value *= scale;
                }
                figures.row(program, tasks, label, &mut all);
            }
        }
    }
    for (one, other, tasks, metric, target) in [
        (POSTGRES, POSTGRES_BARE, 64, "per_second", Some((AT_LEAST, 0.8))),
        (POSTGRES, POSTGRES_BARE, 1, "p50", Some((AT_MOST, 1.2))),
        (SQLITE, SQLITE_BARE, 64, "per_second", None),
        (SQLITE, SQLITE_BARE, 1, "p50", None),
        (POSTGRES, DBOS, 64, "per_second", None),
        (POSTGRES, DBOS, 1, "p50", None),
    ] {
        let [ours, theirs] = [one, other].map(|program| values(program, tasks, metric));
        let mut ratios: Vec<f64> =
            ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
        let what = if metric == "p50" { "commit, p50" } else { "steps per second" };
        let ratio = format!("{what}, to that of {other}");
        let measured = figures.row(one, tasks, &ratio, &mut ratios);
        if let Some(target) = target {
            let (what, other) = (what.to_owned(), "a bare loop's");
            let what = format!("{tasks} at the same time: {what} to {other}");
            figures.target(&what, measured, target, "×");
        }
    }
    Ok(())
}

/// Replicas that are killed or shut down while they run a task.
fn recovery(programs: &Programs, figures: &mut Figures) -> Result {
    let lease = LEASE.to_string();
    // In databases of their own: a task that is left goes on at any replica.
    for (name, signal, repetitions, what, wanted) in [
        (
            "killed",
            "-KILL",
            "5",
            "from SIGKILL until the next step elsewhere, lease of 10 s",
            LEASE + 1.5,
        ),
        ("drained", "-TERM", "20", "from SIGTERM until the next step elsewhere", 0.1),
    ] {
        show(&format!("  {what}: "))?;
        let sample = programs.tasks(
            "recovery",
            &[
                ("database", &programs.database(name)),
                ("lease", &lease),
                ("signal", signal),
                ("repetitions", repetitions),
            ],
        )?;
        let [low, middle, high] = ["min", "p50", "max"].map(|name| number(&sample, name) / 1e3);
        println!("{middle:.3} s, at most {high:.3} s");
        let metric = format!("s, {repetitions} times");
        let measured = figures.row(what, 0, &metric, &mut [low, middle, high]);
        figures.target(what, measured, (AT_MOST, wanted), "s");
    }
    Ok(())
}

/// From the response to `tasks/update` until the handler has the answer.
fn answers(programs: &Programs, figures: &mut Figures) -> Result {
    let what = "from the acknowledged answer until the handler has it";
    show(&format!("  {what}: "))?;
    let database = programs.database("answers");
    let sample = programs.tasks("answers", &[("database", &database), ("count", "200")])?;
    let [middle, late] = ["p50", "p99"].map(|name| number(&sample, name));
    println!("{middle:.2} ms, p99 {late:.2} ms");
    figures.row(what, 0, "p50, ms", &mut [middle]);
    figures.row(what, 0, "p99, ms", &mut [late]);
    figures.target(&format!("{what}, p50"), (middle, middle, middle), (AT_MOST, 10.0), "ms");
    Ok(())
}

/// A database with a million tasks that wait, beside one with a single task.
fn waiting(programs: &Programs, extent: &Extent, figures: &mut Figures) -> Result {
    let databases = ["one", "many"].map(|name| programs.database(name));
    show("  tasks that wait: ")?;
    let [_, full] = [("1", &databases[0]), (WAITING, &databases[1])].map(|(count, database)| {
        programs.tasks("fill", &[("database", database), ("count", count)])
    });
    let full = full?;
    println!("{}", number(&full, "tasks"));
    let what = "a million tasks that wait";
    figures.row(what, 0, "bytes of one on the disk", &mut [number(&full, "bytes")]);
    let mut samples = [Vec::new(), Vec::new()];
    for round in 1..=extent.rounds {
        show(&format!("  {round}/{} ", extent.rounds))?;
        for (database, samples) in databases.iter().zip(&mut samples) {
            let sample = programs.tasks("claims", &[("database", database), ("count", "100")])?;
            let at = |kind: &str, name| sample.get(kind).map_or(f64::NAN, |all| number(all, name));
            show(&format!(" {:.2} {:.2}", at("taken", "p50"), at("none", "p50")))?;
            samples.push(["taken", "none"].map(|kind| ["p50", "p99"].map(|name| at(kind, name))));
        }
        println!();
    }
    let names = ["one task", what];
    for (name, samples) in names.iter().zip(&samples) {
        for (kind, metric) in [(0, "a claim that takes one"), (1, "a claim that finds none")] {
            for (at, quantile) in [(0, "p50, ms"), (1, "p99, ms")] {
                let mut all: Vec<f64> =
                    samples.iter().map(|sample: &[[f64; 2]; 2]| sample[kind][at]).collect();
                let measured = figures.row(name, 0, &format!("{metric}, {quantile}"), &mut all);
                if *name == what && at == 0 {
                    figures.target(
                        &format!("{metric} beside {what}, p50"),
                        measured,
                        (AT_MOST, 2.0),
                        "ms",
                    );
                }
            }
        }
    }
    let idle = programs.tasks(
        "idle",
        &[("database", &databases[0]), ("other", &databases[1]), ("seconds", "10")],
    )?;
    for (name, value, scale) in [("rss", "memory, MB", 1e-6), ("cpu_us", "CPU per second, µs", 1.0)]
    {
        let at = |n: usize| idle.get(n).map_or(f64::NAN, |one| number(one, name) * scale);
        for (n, title) in names.iter().enumerate() {
            figures.row(title, 0, &format!("a replica with nothing to do, {value}"), &mut [at(n)]);
        }
        if name == "rss" {
            let more = at(1) - at(0);
            figures.target(
                &format!("memory of a replica for {what}"),
                (more, more, more),
                (AT_MOST, 1.0),
                "MB",
            );
        }
    }
    Ok(())
}
