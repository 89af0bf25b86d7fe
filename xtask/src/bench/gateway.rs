//! The latency that gateways add to a call.

use std::process::Command;

use super::subject::{Load, Sample, Subject, built, check, ratio};
use super::{Extent, Part, Sheet, Target, median, show};
use crate::Result;
use crate::needs::{self, require};
use crate::run::{Server, free_port, root, scratch};
use crate::tools::{python, script};

const DIRECT: &str = "the server itself";
const NGINX: &str = "nginx, which parses no body";
const GATEWAY: &str = "mrtr gateway, 1 upstream";
const MANY: &str = "mrtr gateway, 16 upstreams";
const FASTMCP: &str = "FastMCP 4.1.4 proxy, 1 upstream";
/// It initializes its upstream as a legacy client and forwards no questions, so it has no second
/// round.
const TOWER_MCP: &str = "tower-mcp 0.25.0 proxy, 1 legacy upstream";

const WORKLOADS: [(&str, &str); 2] = [("echo", "echo"), ("a call of two rounds", "order")];

pub fn measure(extent: &Extent) -> Result<Part> {
    check()?;
    require(&[needs::NGINX])?;
    built("load")?;
    let served = built("mrtr")?.join("served");
    let gateway = built("gateway")?.join("gateway-peer").display().to_string();
    // The upstreams share a core with what is in front of them.
    let start = || Server::start(Command::new("taskset").args(["-c", "1"]).arg(&served));
    let mut upstreams: Vec<Server> = (0..16).map(|_| start()).collect::<Result<_>>()?;
    let urls: Vec<_> =
        upstreams.iter().map(|server| format!("http://127.0.0.1:{}/mcp", server.port)).collect();
    let in_front = |count: usize| {
        let urls = urls.iter().take(count).map(String::as_str);
        std::iter::once(gateway.as_str()).chain(urls).collect::<Vec<_>>()
    };
    let mut subjects = vec![
        Subject::new(DIRECT, &[&served.display().to_string()]),
        Subject::new(GATEWAY, &in_front(1)),
        Subject::new(MANY, &in_front(16)),
    ];
    let (folder, port) = (scratch("bench-nginx")?.display().to_string(), free_port()?.to_string());
    let first = upstreams.first().ok_or("no upstream")?.port.to_string();
    let nginx = root().join("benches/gateway/nginx.sh").display().to_string();
    subjects.insert(1, Subject::new(NGINX, &[&nginx, &folder, &port, &first]));
    if extent.all {
        let python = python("fastmcp")?.display().to_string();
        let script = script("fastmcp", "proxy.py").display().to_string();
        let url = urls.first().ok_or("no upstream")?;
        subjects.push(Subject::new(FASTMCP, &[&python, &script, url]));
        // The same server, with its default features: it also speaks legacy revisions.
        let program = built("readme")?.join("readme-peer");
        let legacy = Server::start(Command::new("taskset").args(["-c", "1"]).arg(program))?;
        let proxy = built("tower-mcp")?.join("tower-mcp-peer").display().to_string();
        let url = format!("http://127.0.0.1:{}/mcp", legacy.port);
        subjects.push(Subject::new(TOWER_MCP, &[&proxy, &url]));
        upstreams.push(legacy);
    }
    let mut samples: Vec<Vec<Vec<Sample>>> =
        WORKLOADS.iter().map(|_| subjects.iter().map(|_| Vec::new()).collect()).collect();
    for round in 1..=extent.rounds {
        for ((title, workload), of_workload) in WORKLOADS.iter().zip(&mut samples) {
            show(&format!("  {round}/{}  {title:<30}", extent.rounds))?;
            for (subject, samples) in subjects.iter().zip(of_workload) {
                if subject.name == TOWER_MCP && *workload != "echo" {
                    continue;
                }
                let sample = subject.measure(&Load::new(*workload, 1), extent)?;
                show(&format!(" {:>9.0}", sample.get("p50_us")))?;
                samples.push(sample);
            }
            println!();
        }
    }
    let columns = ["workload", "server", "p50, µs", "p99, µs", "ratio of p50", "ratio of p99"];
    let mut sheet = Sheet::new(&columns);
    let mut targets = Vec::new();
    for ((title, _), rows) in WORKLOADS.iter().zip(&samples) {
        let [direct, _, one, many, ..] = rows.as_slice() else {
            return Err("a row is missing".into());
        };
        for (subject, row) in subjects.iter().zip(rows).filter(|(_, row)| !row.is_empty()) {
            let mut cells = vec![(*title).to_owned(), subject.name.clone()];
            cells.extend(["p50_us", "p99_us"].map(|metric| {
                format!("{:.0}", median(&mut row.iter().map(|s| s.get(metric)).collect::<Vec<_>>()))
            }));
            cells.extend(
                ["p50_us", "p99_us"].map(|metric| format!("{:.2}", ratio(row, direct, metric).0)),
            );
            sheet.push(cells);
        }
        let mut target = |what: String, wanted: f64, row: &[Sample], base: &[Sample]| {
            let (measured, low, high) = ratio(row, base, "p50_us");
            let (spread, at_least, unit) = (Some((low, high)), false, "×");
            targets.push(Target { what, wanted, measured, spread, at_least, unit });
        };
        target(format!("{title}: p50 of the gateway to the server's"), 1.6, one, direct);
        target(format!("{title}: p50 with 16 upstreams to that with 1"), 1.05, many, one);
    }
    Ok(Part { sheet, targets })
}
