//! Growth of the cost of a call.

use super::chart::Chart;
use super::subject::{Load, Sample, Subject, built, check};
use super::{Extent, Part, Sheet, median, show};
use crate::Result;

/// The column with the cost of a call.
const COST: &str = "CPU, µs";

struct Series {
    /// The file's name.
    name: &'static str,
    title: &'static str,
    /// The label of the axis.
    axis: &'static str,
    logarithmic: bool,
    points: Vec<(f64, Load)>,
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn series() -> [Series; 5] {
    let points = |values: &[usize], load: &dyn Fn(usize) -> Load| {
        values.iter().map(|n| (*n as f64, load(*n))).collect()
    };
    let n = |n: usize| n.to_string();
    [
        Series {
            name: "connections",
            title: "echo, by connections",
            axis: "connections",
            logarithmic: true,
            points: points(&[1, 3, 10, 30, 100, 300, 1000], &|n| Load::new("echo", n)),
        },
        Series {
            name: "tools",
            title: "a call of the last tool, by tools",
            axis: "tools",
            logarithmic: true,
            points: points(&[1, 10, 100, 1000, 10_000], &|tools| {
                Load::new(format!("last:{tools}"), 32).of_server(&["--tools", &n(tools)])
            }),
        },
        Series {
            name: "journal",
            title: "a call of two rounds, by steps of 10 bytes recorded in the first",
            axis: "entries of the journal",
            logarithmic: false,
            points: points(&[0, 125, 250, 500, 750, 1000], &|steps| {
                Load::new(format!("grow:{steps}:10"), 8)
            }),
        },
        Series {
            name: "state",
            title: "a call of two rounds, by bytes that eight steps recorded in the first",
            axis: "bytes in the state",
            logarithmic: false,
            points: points(&[0, 8, 16, 32, 48, 60].map(|kib| kib << 10), &|bytes| {
                Load::new(format!("grow:8:{}", (bytes / 8).saturating_sub(2)), 8)
            }),
        },
        Series {
            name: "listeners",
            title: "echo, by open streams of subscriptions/listen",
            axis: "streams",
            logarithmic: true,
            points: points(&[0, 1, 10, 100, 1000, 10_000], &|streams| {
                Load::new("echo", 32).with(&["--listeners", &n(streams)])
            }),
        },
    ]
}

pub fn measure(extent: &Extent) -> Result<Part> {
    check()?;
    built("load")?;
    let served = built("mrtr")?.join("served").display().to_string();
    let served = Subject::new("mrtr, served", &[&served]);
    let series = series();
    let mut all: Vec<Vec<Vec<Sample>>> =
        series.iter().map(|series| series.points.iter().map(|_| Vec::new()).collect()).collect();
    for round in 1..=extent.rounds {
        for (series, samples) in series.iter().zip(&mut all) {
            show(&format!("  {round}/{}  {:<66}", extent.rounds, series.title))?;
            for ((_, load), samples) in series.points.iter().zip(samples) {
                let sample = served.measure(load, extent)?;
                show(&format!(" {:>7.1}", sample.get("cpu_us")))?;
                samples.push(sample);
            }
            println!();
        }
    }
    let mut sheet = Sheet::new(&["chart", "axis", "at", COST]);
    for (series, samples) in series.iter().zip(&all) {
        for ((at, _), samples) in series.points.iter().zip(samples) {
            let cost =
                median(&mut samples.iter().map(|sample| sample.get("cpu_us")).collect::<Vec<_>>());
            let (name, axis) = (series.name.to_owned(), series.axis.to_owned());
            sheet.push(vec![name, axis, at.to_string(), format!("{cost:.1}")]);
        }
    }
    Ok(Part { sheet, targets: Vec::new() })
}

/// Draws the charts of the data, and returns them with the names of their files.
pub fn charts(sheet: &Sheet) -> Result<Vec<(String, String)>> {
    let draw = |series: Series| {
        let rows = sheet.rows().filter(|row| row.get("chart") == series.name);
        let points = rows.map(|row| Ok((row.get("at").parse()?, row.get(COST).parse()?)));
        let points: Vec<(f64, f64)> = points.collect::<Result<_>>()?;
        let Series { name, title, axis, logarithmic, .. } = series;
        let chart = Chart { title, axis, logarithmic, points: &points };
        Ok((format!("{name}.svg"), chart.svg()?))
    };
    series().into_iter().map(draw).collect()
}
