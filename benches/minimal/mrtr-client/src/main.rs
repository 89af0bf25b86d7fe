//! A minimal client on mrtr: one call, and an answer to its questions.

use mrtr::ElicitResult;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (first, rest) =
        args.split_first().ok_or("usage: client URL, or a command with arguments")?;
    let answer = async |_: mrtr::client::InputContext, _| {
        Ok(ElicitResult::accept(json!({ "place": "outside" }))?)
    };
    let arguments = json!({ "people": 2 });
    let result = if first.contains("://") {
        mrtr::connect(first)?.on_form(answer).build().call_tool("book", arguments).await?
    } else {
        let child = mrtr::stdio::ChildServer::new(first, rest);
        mrtr::Client::builder(child).on_form(answer).build().call_tool("book", arguments).await?
    };
    println!("{}", result.text());
    Ok(())
}
