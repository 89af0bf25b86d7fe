//! The time from the acknowledgement of an answer until the handler continues with it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::recorder::quantiles;
use crate::replica::{Replica, now};
use crate::{Args, Result, calls};

/// Answers one task after the other.
pub async fn run(args: &Args) -> Result<Value> {
    let database: String = args.get("database")?;
    let mut replica = Replica::start(&database, 10.0).await?;
    let mut millis = Vec::new();
    for number in 0..args.get("count")? {
        let call = calls::call("ask", json!({}));
        let id = calls::task_id(&replica.connection.send("tools/call", call).await?)?;
        let get = json!({ "taskId": id });
        while replica.connection.send("tasks/get", get.clone()).await?["status"] != "input_required"
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let answer = json!({ "action": "accept", "content": { "number": number } });
        let update = json!({ "taskId": id, "inputResponses": { "number": answer } });
        replica.connection.send("tasks/update", update).await?;
        let acknowledged = now();
        let (told, at) = replica.told().await?;
        if told != number {
            return Err(format!("the handler got {told} instead of {number}").into());
        }
        millis.push(at - acknowledged);
    }
    Ok(quantiles(&mut millis))
}
