//! Tools that become tasks.

use std::time::Duration;

use mrtr::tasks::TaskPolicy;
use mrtr::{Context, Error, Result, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Name;

pub(crate) fn tools() -> [Tool; 7] {
    let now = || TaskPolicy::immediately().poll_interval(Duration::from_millis(200));
    [
        Tool::new("greet", "Greets a person", async |Name { name }: Name| {
            format!("Hello, {name}!")
        }),
        Tool::new("slow_compute", "Computes for some seconds", slow_compute)
            .task(TaskPolicy::after(Duration::from_millis(500))),
        Tool::new("failing_job", "Fails after a second", failing_job).task(now().required()),
        Tool::new("protocol_error_job", "Panics", protocol_error_job).task(now()),
        Tool::new("confirm_delete", "Deletes a file if the user agrees", confirm_delete)
            .task(now()),
        Tool::new("multi_input", "Asks two questions at once", multi_input).task(now()),
        Tool::new("test_tool_with_task", "Asks for a name, and becomes a task", greet_as_task)
            .task(TaskPolicy::on_detach()),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct Computation {
    /// How long it takes.
    seconds: f64,
    /// The label of the result.
    #[serde(default)]
    label: String,
}

async fn slow_compute(_: Context, Computation { seconds, label }: Computation) -> Result<String> {
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| Error::new("Invalid seconds."))?;
    tokio::time::sleep(time).await;
    Ok(format!("{label}: computed for {seconds} s"))
}

async fn failing_job(_: Context) -> Result<String> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    Err(Error::new("This job always fails."))
}

#[expect(clippy::panic, reason = "it is the purpose of this tool")]
async fn protocol_error_job(_: Context) -> Result<String> {
    panic!("this job always panics")
}

#[derive(Deserialize, JsonSchema)]
struct File {
    filename: String,
}

#[derive(Deserialize, JsonSchema)]
struct Consent {
    confirm: bool,
}

async fn confirm_delete(cx: Context, File { filename }: File) -> Result<String> {
    let question = format!("Delete {filename}?");
    let Consent { confirm } = cx.elicit("confirm", question).await?;
    Ok(if confirm { "Deleted." } else { "Kept." }.to_owned())
}

/// The suite answers each of the two questions with both members.
#[derive(Deserialize, JsonSchema)]
struct Both {
    name: String,
    confirm: bool,
}

async fn multi_input(cx: Context) -> Result<String> {
    let (one, other) = tokio::try_join!(
        cx.elicit::<Both>("first", "The first?"),
        cx.elicit::<Both>("second", "The second?"),
    )?;
    let confirmed = one.confirm && other.confirm;
    Ok(format!("{}, {}: {confirmed}", one.name, other.name))
}

async fn greet_as_task(cx: Context) -> Result<String> {
    let Name { name } = cx.elicit("user_name", "What is your name?").await?;
    cx.detach().await?;
    Ok(format!("Hello, {name}!"))
}
