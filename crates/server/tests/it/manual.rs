//! The manual form: questions, state and answers by hand.

use mrtr_server::manual::{InputRequired, ManualContext, ManualOutput};
use mrtr_server::{Error, Result, Tool, ToolOutput};
use serde_json::{Value, json};

use crate::support::{Text, call_tool, fleet};

#[tokio::test]
async fn manual_handler_keeps_state_and_separates_unsolicited_answers() {
    let fleet = fleet(|| {
        Tool::manual("t", "", async |cx: ManualContext| -> Result<ManualOutput<ToolOutput>> {
            assert!(
                cx.unsolicited_answers().get("x").is_some(),
                "`x` is never asked for, and always sent"
            );
            match cx.state::<u32>()? {
                None => Ok(InputRequired::new().elicit::<Text>("a", "?").state(&7_u32).into()),
                Some(7) => match cx.answers().form::<Text>("a") {
                    Some(text) => Ok(format!("7{}", text.text).into()),
                    None => Ok(InputRequired::new().elicit::<Text>("a", "?").state(&7_u32).into()),
                },
                Some(other) => Err(Error::new(format!("{other}"))),
            }
        })
    });
    let answers = json!({ "a": { "action": "accept", "content": { "text": "x" } }, "x": { "action": "cancel" } });
    let first = call(&fleet, json!({ "inputResponses": answers })).await;
    assert!(first["inputRequests"]["a"].is_object());
    let second =
        call(&fleet, json!({ "inputResponses": answers, "requestState": first["requestState"] }))
            .await;
    assert_eq!(second["content"][0]["text"], "7x");
}

/// In the manual form too, an answer is held against what the type's form says beyond the type.
#[tokio::test]
async fn answers_form_checks_the_limits_of_the_form() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Party {
        #[schemars(range(min = 1, max = 12))]
        people: u8,
    }
    let fleet = fleet(|| {
        Tool::manual("t", "", async |cx: ManualContext| -> Result<ManualOutput<ToolOutput>> {
            Ok(match cx.answers().form::<Party>("a") {
                Some(party) => format!("for {}", party.people).into(),
                None => InputRequired::new().elicit::<Party>("a", "How many?").into(),
            })
        })
    });
    let first = call(&fleet, json!({})).await;
    for (people, fits) in
        [(json!(2), true), (json!(0), false), (json!(13), false), (json!("2"), false)]
    {
        let answer = json!({ "a": { "action": "accept", "content": { "people": people } } });
        let more = json!({ "inputResponses": answer, "requestState": first["requestState"] });
        let result = call(&fleet, more).await;
        assert_eq!(result["content"][0]["text"] == "for 2", fits, "{people}: {result}");
        assert_eq!(result["resultType"] == "input_required", !fits, "{people}: {result}");
    }
}

/// Sends one leg by hand; `more` are parameters beside the usual ones.
async fn call(fleet: &mrtr_testkit::Replicas, more: Value) -> Value {
    call_tool(fleet, "t", json!({}), more).await
}

#[tokio::test]
async fn duplicate_key_is_an_internal_error() {
    let fleet = fleet(|| {
        Tool::manual("t", "", async |_: ManualContext| {
            InputRequired::new().elicit::<Text>("a", "?").elicit::<Text>("a", "!")
        })
    });
    let refused = call(&fleet, json!({})).await;
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
}
