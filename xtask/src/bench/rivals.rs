//! mrtr compared with bare servers and with other SDKs.

use super::subject::{Load, Sample, Subject, built, check, ratio};
use super::{Extent, Part, Sheet, Target, median, show};
use crate::Result;
use crate::tools::{npm_programs, python, script};

const AXUM: &str = "bare axum";
const HYPER: &str = "bare hyper";
pub(super) const SERVED: &str = "mrtr, served";
const MOUNTED: &str = "mrtr, in axum";
const README: &str = "mrtr, as in the README";
const RMCP: &str = "rmcp 3.11.0, best settings";
pub(super) const SHIPPED: &str = "rmcp 3.11.0, as shipped";
const PYTHON: &str = "Python mcp 2.3.0";
const TYPESCRIPT: &str = "TypeScript 2.4.0";

struct Workload {
    title: &'static str,
    load: Load,
    /// The servers. The first is the baseline of the others.
    subjects: &'static [&'static str],
}

const HTTP: &[&str] = &[AXUM, HYPER, SERVED, MOUNTED, README, RMCP, SHIPPED, PYTHON, TYPESCRIPT];

fn workloads() -> [Workload; 9] {
    let http = |title, workload, connections| Workload {
        title,
        load: Load::new(workload, connections),
        subjects: HTTP,
    };
    [
        http("echo, 32 connections", "echo", 32),
        http("echo, 128 connections", "echo", 128),
        http("a call of two rounds, 32 connections", "order", 32),
        http("a call of two rounds, 128 connections", "order", 128),
        http("a call of three rounds with ten steps, 32 connections", "plan", 32),
        http("three progress notifications and a result, 32 connections", "count", 32),
        Workload {
            load: Load::new("list:200", 32).of_server(&["--tools", "200"]),
            ..http("a list of 200 tools, 32 connections", "", 0)
        },
        http("an argument of 64 KiB, 32 connections", "length", 32),
        Workload {
            title: "echo over standard streams, 32 in flight",
            load: Load::new("echo", 32).with(&["--stdio"]).of_server(&["--stdio"]),
            subjects: &[SERVED, RMCP, PYTHON, TYPESCRIPT],
        },
    ]
}

pub(super) fn subjects(all: bool) -> Result<Vec<Subject>> {
    let (floors, ours, rmcp) = (built("floors")?, built("mrtr")?, built("rmcp")?.join("bench"));
    let readme = built("readme")?.join("readme-peer");
    built("load")?;
    let at = |path: &std::path::Path| path.display().to_string();
    let mut subjects = vec![
        Subject::new(AXUM, &[&at(&floors.join("bare-axum"))]),
        Subject::new(HYPER, &[&at(&floors.join("bare-hyper"))]),
        Subject::new(SERVED, &[&at(&ours.join("served"))]),
        Subject::new(MOUNTED, &[&at(&ours.join("mounted"))]),
        Subject::new(README, &[&at(&readme)]),
        Subject::new(RMCP, &[&at(&rmcp)]),
        Subject::new(SHIPPED, &[&at(&rmcp), "--as-shipped"]),
    ];
    if all {
        subjects.push(Subject::new(
            PYTHON,
            &[&at(&python("python")?), &at(&script("python", "bench.py"))],
        ));
        let (node, home) = npm_programs("typescript")?;
        subjects.push(Subject::new(TYPESCRIPT, &[&at(&node), &at(&home.join("bench.mjs"))]));
    }
    Ok(subjects)
}

/// The samples of a server under a workload, one per round.
struct Row<'a> {
    subject: &'a str,
    samples: Vec<Sample>,
}

impl Row<'_> {
    fn median(&self, metric: &str) -> f64 {
        median(&mut self.samples.iter().map(|sample| sample.get(metric)).collect::<Vec<_>>())
    }

    /// Returns the ratios of a metric to that of `base` in the same round: median, lowest and
    /// highest.
    fn ratio(&self, base: &Self, metric: &str) -> (f64, f64, f64) {
        ratio(&self.samples, &base.samples, metric)
    }
}

pub fn measure(extent: &Extent) -> Result<Part> {
    check()?;
    let subjects = subjects(extent.all)?;
    let workloads = workloads();
    let mut tables: Vec<Vec<Row<'_>>> = Vec::new();
    for workload in &workloads {
        let there = |name: &&str| subjects.iter().any(|subject| subject.name == *name);
        let names = workload.subjects.iter().copied().filter(there);
        tables.push(names.map(|subject| Row { subject, samples: Vec::new() }).collect());
    }
    for round in 1..=extent.rounds {
        for (workload, rows) in workloads.iter().zip(&mut tables) {
            show(&format!("  {round}/{}  {:<62}", extent.rounds, workload.title))?;
            for row in rows {
                let subject = subjects.iter().find(|subject| subject.name == row.subject);
                let subject = subject.ok_or("a server without a program")?;
                // The Python SDK responds with JSON only to calls without progress.
                let mut load = workload.load.clone();
                if row.subject == PYTHON
                    && load.workload != "count"
                    && !load.server.contains(&"--stdio".to_owned())
                {
                    load = load.of_server(&["--json"]);
                }
                let sample = subject.measure(&load, extent)?;
                show(&format!(" {:>6.0}", sample.get("per_second")))?;
                row.samples.push(sample);
            }
            println!();
        }
    }
    let mut sheet = Sheet::new(&COLUMNS);
    for (workload, rows) in workloads.iter().zip(&tables) {
        add(&mut sheet, workload.title, rows);
    }
    Ok(Part { sheet, targets: targets(&tables) })
}

const COLUMNS: [&str; 14] = [
    "workload",
    "server",
    "per second",
    "baseline",
    "ratio",
    "lowest ratio",
    "highest ratio",
    "CPU, µs",
    "CPU ratio",
    "p50, µs",
    "p99, µs",
    "idle RSS, MB",
    "peak RSS, MB",
    "first answer, ms",
];

fn add(sheet: &mut Sheet, title: &str, rows: &[Row<'_>]) {
    let Some(base) = rows.first() else { return };
    for row in rows {
        let (middle, low, high) = row.ratio(base, "per_second");
        let digits = if middle < 0.1 { 3 } else { 2 };
        let many = |n: f64| if n < 100.0 { format!("{n:.1}") } else { format!("{n:.0}") };
        let mut texts = vec![title.to_owned(), row.subject.to_owned()];
        texts.push(format!("{:.0}", row.median("per_second")));
        texts.push(base.subject.to_owned());
        texts.extend([middle, low, high].map(|ratio| format!("{ratio:.digits$}")));
        texts.push(many(row.median("cpu_us")));
        texts.push(format!("{:.2}", row.ratio(base, "cpu_us").0));
        texts.extend(["p50_us", "p99_us"].map(|metric| many(row.median(metric))));
        texts.extend(["idle", "peak"].map(|metric| format!("{:.1}", row.median(metric) / 1e6)));
        texts.push(format!("{:.1}", row.median("first_ms")));
        sheet.push(texts);
    }
}

fn targets(tables: &[Vec<Row<'_>>]) -> Vec<Target> {
    let [echo, echo_128, two_rounds, two_rounds_128, steps, ..] = tables else {
        return Vec::new();
    };
    let mut targets = Vec::new();
    let mut ratio =
        |what: &str, rows: &[Row<'_>], (own, base): (&str, &str), metric, at_least, wanted| {
            let row = |name: &str| rows.iter().find(|row| row.subject == name);
            if let (Some(own), Some(base)) = (row(own), row(base)) {
                let (measured, low, high) = own.ratio(base, metric);
                let spread = Some((low, high));
                let what = what.to_owned();
                targets.push(Target { what, wanted, measured, spread, at_least, unit: "×" });
            }
        };
    let served = (SERVED, AXUM);
    for (at, rows) in [("32", echo), ("128", echo_128)] {
        ratio(&format!("echo, {at}: throughput to axum's"), rows, served, "per_second", true, 1.0);
        ratio(&format!("echo, {at}: CPU to axum's"), rows, served, "cpu_us", false, 1.0);
        let rmcp = (SERVED, RMCP);
        ratio(&format!("echo, {at}: throughput to rmcp's"), rows, rmcp, "per_second", true, 3.0);
    }
    for (at, rows) in [("32", two_rounds), ("128", two_rounds_128)] {
        ratio(
            &format!("two rounds, {at}: throughput to axum's"),
            rows,
            served,
            "per_second",
            true,
            0.9,
        );
        ratio(&format!("two rounds, {at}: CPU to axum's"), rows, served, "cpu_us", false, 1.15);
        ratio(&format!("two rounds, {at}: p99 to axum's"), rows, served, "p99_us", false, 1.3);
    }
    let what = "three rounds with ten steps, 32: throughput to axum's";
    ratio(what, steps, served, "per_second", true, 0.8);
    let readme = (README, SERVED);
    let what = "as in the README: echo, 32, throughput to the server with LTO";
    ratio(what, echo, readme, "per_second", true, 0.92);
    let what = "as in the README: two rounds, 32, throughput to the server with LTO";
    ratio(what, two_rounds, readme, "per_second", true, 0.92);
    let mounted = (MOUNTED, AXUM);
    ratio("in axum: echo, 32, throughput", echo, mounted, "per_second", true, 0.93);
    ratio("in axum: two rounds, 32, throughput", two_rounds, mounted, "per_second", true, 0.83);
    let stretch = (SERVED, HYPER);
    ratio("stretch: echo, 32, throughput to hyper's", echo, stretch, "per_second", true, 0.97);
    ratio(
        "stretch: two rounds, 32, throughput to hyper's",
        two_rounds,
        stretch,
        "per_second",
        true,
        0.95,
    );
    for (what, server) in [
        ("peak RSS at 128 connections", SERVED),
        ("as in the README: peak RSS at 128 connections", README),
    ] {
        let rows = [echo_128, two_rounds_128].into_iter().flatten();
        let peaks = rows.filter(|row| row.subject == server).map(|row| row.median("peak") / 1e6);
        targets.push(Target {
            what: what.to_owned(),
            wanted: 8.0,
            measured: peaks.fold(0.0, f64::max),
            spread: None,
            at_least: false,
            unit: "MB",
        });
    }
    targets
}
