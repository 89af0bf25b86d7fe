//! The servers under test, and one measurement.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::{Extent, median};
use crate::Result;
use crate::needs::is_installed;
use crate::run::{output, release, scratch};

/// A server.
pub struct Subject {
    pub name: String,
    command: Vec<String>,
}

/// The load on a server.
#[derive(Clone)]
pub struct Load {
    /// The name in the load program.
    pub workload: String,
    pub connections: usize,
    pub more: Vec<String>,
    /// Further arguments of the server.
    pub server: Vec<String>,
}

impl Load {
    pub fn new(workload: impl Into<String>, connections: usize) -> Self {
        Self { workload: workload.into(), connections, more: Vec::new(), server: Vec::new() }
    }

    /// Adds arguments for the load program.
    pub fn with(mut self, arguments: &[&str]) -> Self {
        self.more.extend(arguments.iter().map(ToString::to_string));
        self
    }

    /// Adds arguments for the server.
    pub fn of_server(mut self, arguments: &[&str]) -> Self {
        self.server.extend(arguments.iter().map(ToString::to_string));
        self
    }
}

/// The result of one measurement.
pub struct Sample(Value);

impl Sample {
    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
    }
}

impl Subject {
    pub fn new(name: impl Into<String>, command: &[&str]) -> Self {
        let command = command.iter().map(ToString::to_string).collect();
        Self { name: name.into(), command }
    }

    /// Wraps the command of the server in another program.
    pub fn under(&self, command: &[String]) -> Self {
        Self { name: self.name.clone(), command: [command, &self.command].concat() }
    }

    /// Starts the server on one core, loads it from the other, and stops it.
    pub fn measure(&self, load: &Load, extent: &Extent) -> Result<Sample> {
        let program = scratch("release")?.join("release/load");
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(program).args(["--workload", &load.workload]);
        command.args(["--connections", &load.connections.to_string()]);
        command.args(["--seconds", &extent.seconds.to_string()]).args(&load.more);
        command.args(["--", "taskset", "-c", "1"]).args(&self.command).args(&load.server);
        let said = output(&mut command).map_err(|e| format!("{}: {e}", self.name))?;
        Ok(Sample(serde_json::from_str(&said)?))
    }
}

/// Builds the programs of `benches/{name}`, or of `interop/rmcp`, and returns their folder.
pub fn built(name: &str) -> Result<PathBuf> {
    let folder = if name == "rmcp" { "interop" } else { "benches" };
    release(&format!("{folder}/{name}"))
}

/// Returns the ratios of a metric to that of `base` in the same round: median, lowest and highest.
pub fn ratio(row: &[Sample], base: &[Sample], metric: &str) -> (f64, f64, f64) {
    let mut ratios: Vec<f64> =
        row.iter().zip(base).map(|(own, base)| own.get(metric) / base.get(metric)).collect();
    let middle = median(&mut ratios);
    let (low, high) = (ratios.first().copied(), ratios.last().copied());
    (middle, low.unwrap_or(middle), high.unwrap_or(middle))
}

/// Checks the requirements of a measurement.
pub fn check() -> Result {
    let processors = std::thread::available_parallelism()?.get();
    if !cfg!(target_os = "linux") || processors < 2 {
        return Err(
            "the benchmarks need Linux and two processors: one for the server, one for the load"
                .into(),
        );
    }
    if !is_installed("taskset") {
        return Err("the benchmarks need `taskset`, of util-linux: install it".into());
    }
    Ok(())
}
