//! Two examples of the proposal that this protocol's rounds come from (SEP-2322), each in the middle of a rolling upgrade: the old
//! and the new version of a tool run side by side, the requests go to them by turns, and nobody is asked twice.
//!
//! `cargo run --example upgrades`. The exit code is 0 only if it went so.

mod logins;
mod side_by_side;
mod work_item;

use std::process::ExitCode;

use serde_json::json;

use crate::side_by_side::SideBySide;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    println!("\n  One login stays, the other is replaced.\n");
    let (old, new) = (logins::old()?, logins::new()?);
    let servers = SideBySide::start([("old", old), ("new", new.clone()), ("new", new)]).await?;
    let (accounts, asked) = servers.call("accounts", json!({}), logins::answer).await?;
    let logins_ok = accounts == "octocat on GitHub, tux on Microsoft"
        && asked == ["github_login", "google_login", "microsoft_login"];

    println!("\n  A work item with rules that ask for more and more.\n");
    let servers =
        SideBySide::start([("new", work_item::new()?), ("old", work_item::old()?)]).await?;
    let arguments = json!({ "work_item": 4522, "state": "Resolved" });
    let (done, asked) = servers.call("update_work_item", arguments, work_item::answer).await?;
    let item_ok = done.contains("4522") && asked == ["resolution", "duplicate_of", "followers"];

    let ok = logins_ok && item_ok;
    println!("\n  {}\n", if ok { "Nobody was asked twice." } else { "Something went otherwise." });
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
