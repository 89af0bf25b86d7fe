//! A tracker whose rules require more fields: a resolved bug needs a resolution, and a duplicate
//! needs its original. The new version also asks whether to notify followers. The item is read once
//! and written once.

use mrtr::schema::elicitation::FormParams;
use mrtr::{Context, ElicitResult, Result, Server, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
struct Update {
    /// The number of the work item
    work_item: u32,
    /// The new state
    state: String,
}

/// A work item, as the tracker returns it.
#[derive(Serialize, Deserialize)]
struct WorkItem {
    title: String,
}

#[derive(Deserialize, JsonSchema)]
struct How {
    /// How it was resolved
    resolution: Resolution,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
enum Resolution {
    Fixed,
    /// Won't fix
    WontFix,
    Duplicate,
    /// By design
    ByDesign,
}

#[derive(Deserialize, JsonSchema)]
struct Original {
    /// The number of the other work item
    work_item: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Followers {
    /// Notify them?
    tell: bool,
}

async fn update(cx: Context, update: Update, tells_followers: bool) -> Result<String> {
    let number = update.work_item;
    let item: WorkItem = cx.step("read", async |_| Ok(read(number))).await?;
    let mut done = vec![format!("#{number} ({}) is {}", item.title, update.state)];
    if update.state == "Resolved" {
        let How { resolution } = cx
            .elicit("resolution", format!("How was #{number}, {:?}, resolved?", item.title))
            .await?;
        done.push(format!(": {resolution:?}"));
        if resolution == Resolution::Duplicate {
            let original: Original = cx
                .elicit("duplicate_of", format!("Which one is #{number} a duplicate of?"))
                .await?;
            done.push(format!(" of #{}", original.work_item));
        }
        if tells_followers {
            let message = format!("Shall those who follow #{number} be told?");
            let Followers { tell } = cx.elicit("followers", message).await?;
            done.push(if tell { ", and its followers know" } else { ", quietly" }.to_owned());
        }
    }
    cx.step("write", async |s| {
        write(number, s.idempotency_key());
        Ok(())
    })
    .await?;
    Ok(done.concat() + ".")
}

/// Stands for a request to the tracker.
fn read(number: u32) -> WorkItem {
    WorkItem { title: format!("Page {} is blank", number % 100) }
}

/// Stands for a change in the tracker, which happens once per key.
fn write(_number: u32, _idempotency_key: &str) {}

pub fn old() -> crate::Result<Server> {
    server("1.0.0", false)
}

pub fn new() -> crate::Result<Server> {
    server("2.0.0", true)
}

fn server(version: &str, tells_followers: bool) -> crate::Result<Server> {
    let handler = move |cx, arguments| update(cx, arguments, tells_followers);
    let tool = Tool::new("update_work_item", "Changes the state of a work item", handler);
    super::side_by_side::replica("tracker", version, tool)
}

/// The answers of the user.
pub fn answer(key: &str, _: &FormParams) -> ElicitResult {
    let content = match key {
        "resolution" => json!({ "resolution": "Duplicate" }),
        "duplicate_of" => json!({ "work_item": 4301 }),
        _ => json!({ "tell": true }),
    };
    ElicitResult::accept(content).unwrap_or_else(|_| ElicitResult::cancel())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mrtr::testing::{Fault, Replicas, TestCall, Transcript};

    async fn resolve(fleet: [Server; 2], resolution: &str, fault: Option<Fault>) -> Transcript {
        let arguments = json!({ "work_item": 4522, "state": "Resolved" });
        let mut call = TestCall::tool("update_work_item", arguments)
            .answer("resolution", json!({ "resolution": resolution }))
            .answer("duplicate_of", json!({ "work_item": 4301 }))
            .answer("followers", json!({ "tell": false }));
        if let Some(fault) = fault {
            call = call.fault(3, fault);
        }
        call.run(&Replicas::new(fleet)).await.unwrap()
    }

    #[tokio::test]
    async fn old_and_new_by_turns_ask_each_question_once() {
        let story = resolve([old().unwrap(), new().unwrap()], "Duplicate", None).await;
        assert_eq!(story.text(), "#4522 (Page 22 is blank) is Resolved: Duplicate of #4301.");
        assert_eq!(story.rounds(), [["resolution"], ["duplicate_of"]]);

        // The new version has one more question. The old one, which completes the call, ignores it.
        let story = resolve([new().unwrap(), old().unwrap()], "Duplicate", None).await;
        assert_eq!(story.text(), "#4522 (Page 22 is blank) is Resolved: Duplicate of #4301.");
        assert_eq!(story.rounds(), [["resolution"], ["duplicate_of"], ["followers"]]);
        assert_eq!((story.step_runs("read"), story.step_runs("write")), (1, 1));
    }

    #[tokio::test]
    async fn what_needs_no_original_asks_for_none() {
        let story = resolve([new().unwrap(), new().unwrap()], "Fixed", None).await;
        assert_eq!(story.text(), "#4522 (Page 22 is blank) is Resolved: Fixed, quietly.");
        assert_eq!(story.rounds(), [["resolution"], ["followers"]]);
    }

    /// After a lost response, the item is written again, with the same key.
    #[tokio::test]
    async fn a_lost_response_writes_under_one_key() {
        let fleet = [old().unwrap(), old().unwrap()];
        let story = resolve(fleet, "Duplicate", Some(Fault::ResponseLost)).await;
        assert_eq!((story.step_runs("read"), story.step_runs("write")), (1, 2));
        let mut writes = story.steps().iter().filter(|step| step.key == "write");
        assert_eq!(writes.next(), writes.next());
    }
}
