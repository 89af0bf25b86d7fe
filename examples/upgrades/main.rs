//! Rolling upgrades: the old and the new version of a tool run side by side, requests alternate
//! between them, and each question is asked once. The two tools are the examples of SEP-2322.
//!
//! `cargo run --example upgrades`. The exit code is 0 only if both calls end as expected.

mod logins;
mod side_by_side;
mod work_item;

use std::process::ExitCode;

use serde_json::json;

use crate::side_by_side::SideBySide;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    println!("\n  The new version replaces one of two logins.\n");
    let (old, new) = (logins::old()?, logins::new()?);
    let servers = SideBySide::start([("old", old), ("new", new.clone()), ("new", new)]).await?;
    let (accounts, asked) = servers.call("accounts", json!({}), logins::answer).await?;
    let logins_ok = accounts == "octocat on GitHub, tux on Microsoft"
        && asked == ["github_login", "google_login", "microsoft_login"];

    println!("\n  The new version of a work item has one more rule.\n");
    let servers =
        SideBySide::start([("new", work_item::new()?), ("old", work_item::old()?)]).await?;
    let arguments = json!({ "work_item": 4522, "state": "Resolved" });
    let (done, asked) = servers.call("update_work_item", arguments, work_item::answer).await?;
    let item_ok = done.contains("4522") && asked == ["resolution", "duplicate_of", "followers"];

    let ok = logins_ok && item_ok;
    println!(
        "\n  {}\n",
        if ok { "Each question was asked once." } else { "A call did not end as expected." }
    );
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
