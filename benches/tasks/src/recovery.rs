//! The time from the end of a replica until its task goes on at another one.

use std::time::Duration;

use serde_json::{Value, json};

use crate::recorder::quantiles;
use crate::replica::{Replica, now};
use crate::{Args, Result, calls};

/// The time that a step takes.
const STEP_MILLIS: u64 = 5;

/// One task on a row of replicas, each of which gets a signal when another one waits beside it.
pub async fn run(args: &Args) -> Result<Value> {
    let (database, lease): (String, f64) = (args.get("database")?, args.get("lease")?);
    let (signal, repetitions): (String, u32) = (args.get("signal")?, args.get("repetitions")?);
    let mut holder = Replica::start(&database, lease).await?;
    let call = calls::call("walk", json!({ "millis": STEP_MILLIS }));
    calls::task_id(&holder.connection.send("tools/call", call).await?)?;
    let mut millis = Vec::new();
    for n in 0..repetitions {
        let mut next = Replica::start(&database, lease).await?;
        // The replica renews its lease at each third: it ends at another time in between.
        let third = Duration::from_secs_f64(lease / 3.0);
        let until = now() + 200.0 + (third * n / repetitions).as_secs_f64() * 1e3;
        while holder.told().await?.1 < until {}
        let signalled = now();
        holder.signal(&signal).await?;
        let (_, begun) = next.told().await?;
        millis.push(begun - signalled);
        holder.child.wait().await?;
        holder = next;
    }
    Ok(quantiles(&mut millis))
}
