//! A tool that needs two accounts of the user. The new version asks for a Microsoft account instead
//! of a Google account. The answer about GitHub counts for both versions.

use mrtr::schema::elicitation::FormParams;
use mrtr::{Context, ElicitResult, Result, Server, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
struct Account {
    /// The name of the account (never its password)
    name: String,
}

async fn accounts(cx: Context, other: &'static str) -> Result<String> {
    let key = format!("{}_login", other.to_lowercase());
    let (github, other_account) = tokio::try_join!(
        cx.elicit::<Account>("github_login", "Which GitHub account is yours?"),
        cx.elicit::<Account>(key, format!("Which {other} account is yours?")),
    )?;
    Ok(format!("{} on GitHub, {} on {other}", github.name, other_account.name))
}

pub fn old() -> crate::Result<Server> {
    server("1.0.0", "Google")
}

pub fn new() -> crate::Result<Server> {
    server("2.0.0", "Microsoft")
}

fn server(version: &str, other: &'static str) -> crate::Result<Server> {
    let tool =
        Tool::new("accounts", "Lists the accounts of the user", move |cx| accounts(cx, other));
    super::side_by_side::replica("accounts", version, tool)
}

/// The answers of the user.
pub fn answer(key: &str, _: &FormParams) -> ElicitResult {
    let name = match key {
        "github_login" => "octocat",
        "microsoft_login" => "tux",
        _ => "someone",
    };
    ElicitResult::accept(json!({ "name": name })).unwrap_or_else(|_| ElicitResult::cancel())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mrtr::testing::{Fault, Replicas, TestCall};

    fn call() -> TestCall {
        let account = |name: &str| json!({ "name": name });
        let call = TestCall::tool("accounts", json!({})).answer("github_login", account("a"));
        call.answer("google_login", account("b")).answer("microsoft_login", account("c"))
    }

    #[tokio::test]
    async fn from_old_to_new_only_what_is_new_is_asked() {
        let fleet = Replicas::new([old().unwrap(), new().unwrap(), new().unwrap()]);
        let story = call().run(&fleet).await.unwrap();
        assert_eq!(story.text(), "a on GitHub, c on Microsoft");
        assert_eq!(story.rounds(), [vec!["github_login", "google_login"], vec!["microsoft_login"]]);
    }

    #[tokio::test]
    async fn from_new_to_old_and_back_nothing_is_lost() {
        let fleet = Replicas::new([new().unwrap(), old().unwrap()]);
        let story = call().fault(2, Fault::Reordered).run(&fleet).await.unwrap();
        // The third request reaches the new version, which has both of its answers by then.
        assert_eq!(story.text(), "a on GitHub, c on Microsoft");
        assert_eq!(story.rounds(), [vec!["github_login", "microsoft_login"], vec!["google_login"]]);
    }
}
