//! The costs of replicas that have nothing to do.

use serde_json::{Value, json};

use crate::recorder::cpu_of;
use crate::replica::Replica;
use crate::{Args, Result};

/// Starts a replica for each of two databases, and watches both at the same time.
pub async fn run(args: &Args) -> Result<Value> {
    let time = args.seconds("seconds")?;
    let databases: [String; 2] = [args.get("database")?, args.get("other")?];
    let mut replicas = Vec::new();
    for database in &databases {
        replicas.push(Replica::start(database, 10.0).await?);
    }
    let all = |of: fn(&str) -> Option<f64>| -> Result<Vec<f64>> {
        replicas.iter().map(|replica| Ok(of(&replica.id()?).ok_or("no such process")?)).collect()
    };
    tokio::time::sleep(time / 5).await;
    let before = all(cpu_of)?;
    tokio::time::sleep(time).await;
    let (after, memory) = (all(cpu_of)?, all(memory)?);
    let each = before.iter().zip(&after).zip(&memory).map(|((before, after), memory)| {
        json!({ "cpu_us": (after - before) * 1e6 / time.as_secs_f64(), "rss": memory })
    });
    Ok(each.collect())
}

/// Returns the memory of a process in bytes.
fn memory(process: &str) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * 1024.0)
}
