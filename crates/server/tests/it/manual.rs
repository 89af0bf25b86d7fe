//! Handlers in the manual form, which keep their state themselves.

use mrtr_schema::elicitation::{ElicitAction, ElicitResult};
use mrtr_schema::roots::ListRootsResult;
use mrtr_schema::sampling::{CreateMessageParams, CreateMessageResult};
use mrtr_server::manual::{InputRequired, ManualContext, ManualOutput};
use mrtr_server::{
    Error, Prompt, PromptOutput, Resource, ResourceOutput, ResourceTemplate, Result, Tool,
    ToolOutput,
};
use mrtr_testkit::{Replicas, TestClock};
use serde_json::{Value, json};

use crate::support::{
    Text, alice, call_tool, fleet, invalid_state, replica, send_request, with_meta,
};

#[tokio::test]
async fn manual_handler_keeps_state_and_separates_unsolicited_answers() {
    let fleet = fleet(|| {
        Tool::manual("t", "", async |cx: ManualContext| -> Result<ManualOutput<ToolOutput>> {
            assert!(
                cx.unsolicited_answers().get("x").is_some(),
                "`x` is never asked for and always sent"
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

/// `Answers::form` checks the limits of the form, which are stricter than the type.
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

/// Sends one round of the tool `t`; `more` holds further parameters.
async fn call(fleet: &Replicas, more: Value) -> Value {
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

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Doc {
    id: String,
}

/// Asks twice. The second state holds the first answer, and the result holds both.
fn two_rounds<O>(cx: &ManualContext, subject: &str) -> Result<ManualOutput<O>>
where
    ManualOutput<O>: From<String>,
{
    let Some(answer) = cx.answers().form::<Text>("q") else {
        return Ok(InputRequired::new().elicit::<Text>("q", format!("{subject}?")).into());
    };
    match cx.state::<String>()? {
        None => {
            let again = InputRequired::new().elicit::<Text>("q", "And?");
            Ok(again.state(&answer.text).into())
        }
        Some(first) => Ok(format!("{subject}: {first}, {}", answer.text).into()),
    }
}

#[tokio::test]
async fn manual_form_works_in_prompts_resources_and_templates() {
    let clock = TestClock::default();
    let server = || {
        let prompt = async |cx: ManualContext, doc: Doc| two_rounds::<PromptOutput>(&cx, &doc.id);
        let resource = async |cx: ManualContext| two_rounds::<ResourceOutput>(&cx, "one");
        let template =
            async |cx: ManualContext, doc: Doc| two_rounds::<ResourceOutput>(&cx, &doc.id);
        let server = replica(&clock)
            .prompt(Prompt::manual("p", "", prompt))
            .resource(Resource::manual("a:1", "1", resource))
            .resource_template(ResourceTemplate::manual("doc://{id}", "docs", template));
        server.build().unwrap()
    };
    let fleet = Replicas::new([server(), server(), server()]).as_principal(alice());
    for (method, params, subject, text) in [
        (
            "prompts/get",
            json!({ "name": "p", "arguments": { "id": "7" } }),
            "7",
            "/messages/0/content/text",
        ),
        ("resources/read", json!({ "uri": "a:1" }), "one", "/contents/0/text"),
        ("resources/read", json!({ "uri": "doc://8" }), "8", "/contents/0/text"),
    ] {
        let round = async |state: &Value, answer: Option<&str>| {
            let mut params = with_meta(params.clone());
            if let Some(answer) = answer {
                params["requestState"] = state.clone();
                params["inputResponses"] =
                    json!({ "q": { "action": "accept", "content": { "text": answer } } });
            }
            send_request(&fleet, method, params).await
        };
        let first = round(&Value::Null, None).await;
        let message = &first["inputRequests"]["q"]["params"]["message"];
        assert_eq!(message, &json!(format!("{subject}?")), "{first}");
        let second = round(&first["requestState"], Some("x")).await;
        assert_eq!(second["resultType"], "input_required", "{second}");
        assert_eq!(second["inputRequests"]["q"]["params"]["message"], "And?");
        let last = round(&second["requestState"], Some("y")).await;
        let expected = json!(format!("{subject}: x, y"));
        assert_eq!(last.pointer(text), Some(&expected), "{last}");
        // A state of the manual form is bound to its target, too.
        let mut other = with_meta(json!({ "uri": "doc://9" }));
        other["requestState"] = second["requestState"].clone();
        assert_eq!(send_request(&fleet, "resources/read", other).await, invalid_state());
    }
}

/// `Answers::read` returns an answer as sent, if it has the expected shape.
#[tokio::test]
async fn answers_read_returns_answers_of_every_kind() {
    let fleet = fleet(|| {
        Tool::manual("t", "", async |cx: ManualContext| -> ManualOutput<ToolOutput> {
            let answers = cx.answers();
            if answers.is_empty() {
                let questions = InputRequired::new().elicit::<Text>("form", "?");
                let sample = CreateMessageParams::user("hi", 5);
                return questions.sample("sample", sample).roots("roots").into();
            }
            let form = answers.read::<ElicitResult>("form");
            let sample = answers.read::<CreateMessageResult>("sample");
            let roots = answers.read::<ListRootsResult>("roots");
            assert!(answers.read::<ElicitResult>("roots").is_none(), "a wrong shape");
            assert!(answers.read::<ListRootsResult>("form").is_none(), "a wrong shape");
            assert!(answers.read::<ElicitResult>("other").is_none(), "a key without an answer");
            let form = form.map(|form| (form.action == ElicitAction::Decline, form.content));
            let sample = sample.map(|sample| sample.content.joined_text());
            let roots = roots.map(|roots| roots.roots.len());
            format!("{form:?} {sample:?} {roots:?}").into()
        })
    });
    let send = async |more: Value| {
        let mut params = with_meta(json!({ "name": "t", "arguments": {} }));
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
            json!({ "elicitation": {}, "sampling": {}, "roots": {} });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        send_request(&fleet, "tools/call", params).await
    };
    let first = send(json!({})).await;
    assert_eq!(first["inputRequests"].as_object().unwrap().len(), 3, "{first}");
    let sample = json!({
        "role": "assistant", "model": "m", "content": { "type": "text", "text": "hello" },
    });
    let roots = json!({ "roots": [{ "uri": "file:///a" }, { "uri": "file:///b" }] });
    let answers = json!({ "form": { "action": "decline" }, "sample": sample, "roots": roots });
    let last =
        send(json!({ "inputResponses": answers, "requestState": first["requestState"] })).await;
    assert_eq!(last["content"][0]["text"], r#"Some((true, None)) Some("hello") Some(2)"#, "{last}");
}
