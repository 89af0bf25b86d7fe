//! The content of request states, as developers see it.

use mrtr_codec::{Binding, Digest, OpenError};
use mrtr_server::development::{RequestState, StateEntryKind, key_ring};
use mrtr_server::{Context, Error, Secret, Server, Tool};
use mrtr_testkit::{Replicas, TestClock};
use serde_json::json;

use crate::support::{Text, call_tool};

#[tokio::test]
async fn entries_are_shown_in_their_order() {
    let text = format!("active {}", *Secret::generate().unwrap().to_base64url());
    let clock = TestClock::default();
    let tool = Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<String> {
        let table: u8 = cx.step("hold", async |_| Ok(3)).await?;
        let failed =
            cx.step("pay", async |_| Err::<(), _>(Error::new("no card"))).record_errors().await;
        assert!(failed.is_err());
        let name = cx.elicit::<Text>("name", "Who?").await?.text;
        cx.elicit::<Text>("seat", "Where?").await?;
        Ok(format!("{table} for {name}"))
    });
    let server = Server::builder("test", "1").allow_anonymous().clock(clock.clone());
    let server = server.sealer(key_ring(&text).unwrap()).tool(tool).build().unwrap();
    let fleet = Replicas::new([server]);

    let first = call_tool(&fleet, "t", json!({}), json!({})).await;
    let answer = json!({ "name": { "action": "accept", "content": { "text": "Ada" } } });
    let retry = json!({ "requestState": first["requestState"], "inputResponses": answer });
    let second = call_tool(&fleet, "t", json!({}), retry).await;
    let token = second["requestState"].as_str().unwrap();

    let binding = Binding {
        principal: None,
        proof_key: None,
        method: "tools/call",
        target: "t",
        arguments: Digest::from_json(None).unwrap(),
    };
    let now = mrtr_server::Clock::now(&clock);
    let ring = key_ring(&text).unwrap();
    let state = RequestState::open(&ring, token, &binding, now).unwrap();
    assert_eq!((state.rounds, state.version, state.manual), (2, 0, None));
    assert_eq!(state.open_questions, ["seat"]);
    let entries: Vec<_> = state.entries.iter().map(|entry| (entry.kind, &*entry.key)).collect();
    assert_eq!(
        entries,
        [
            (StateEntryKind::Step, "hold"),
            (StateEntryKind::FailedStep, "pay"),
            (StateEntryKind::Answer, "name"),
        ]
    );
    assert_eq!(state.entries[0].value, "3");
    assert!(state.entries[2].value.contains("Ada"), "{}", state.entries[2].value);
    let shown = format!("[{:>12}]", state.entries[1].kind);
    assert_eq!(shown, "[ failed step]");

    let other = Binding { target: "u", ..binding };
    let refused = RequestState::open(&ring, token, &other, now);
    assert_eq!(refused.unwrap_err(), OpenError::WrongTarget);
}
