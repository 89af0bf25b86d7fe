//! The module that people test their own tools with.

use mrtr_server::manual::ManualContext;
use mrtr_server::testing::{Fault, Replicas, TestCall, TestClock, TestError};
use mrtr_server::{Context, Prompt, ResourceOutput, ResourceTemplate, Tool};
use serde_json::json;

use crate::support::{Text, alice, replica};

/// A step, two questions in one round, a step, one more question.
fn tool() -> Tool {
    Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
        let hold: String = cx.step("hold", async |s| Ok(s.idempotency_key().to_owned())).await?;
        let (a, b) = tokio::try_join!(cx.elicit::<Text>("a", "?"), cx.elicit::<Text>("b", "?"))?;
        cx.step("pay", async |_| {
            tokio::task::yield_now().await;
            Ok(())
        })
        .await?;
        let c = cx.elicit::<Text>("c", format!("{} and {}?", a.text, b.text)).await?;
        Ok(format!("{} {}{}{}", hold.len(), a.text, b.text, c.text))
    })
}

fn fleet() -> Replicas {
    let clock = TestClock::default();
    Replicas::new((0..3).map(|_| replica(&clock).tool(tool()).build().unwrap()))
        .as_principal(alice())
}

fn call() -> TestCall {
    let text = |text: &str| json!({ "text": text });
    TestCall::tool("t", json!({}))
        .answer("a", text("x"))
        .answer("b", text("y"))
        .answer("c", text("z"))
}

#[tokio::test]
async fn transcript_reports_rounds_questions_steps_and_state_size() {
    let story = call().run(&fleet()).await.unwrap();
    assert_eq!((story.text(), story.is_error()), ("32 xyz", false));
    assert_eq!(story.rounds(), [vec!["a", "b"], vec!["c"]]);
    assert_eq!(story.question("c").unwrap()["params"]["message"], "x and y?");
    assert_eq!(
        (story.step_runs("hold"), story.step_runs("pay"), story.step_runs("other")),
        (1, 1, 0)
    );
    assert_eq!(story.steps()[0].idempotency_key.len(), 32);
    assert!((200..2000).contains(&story.largest_state()), "{}", story.largest_state());

    let story = call().respond("a", json!({ "action": "decline" })).run(&fleet()).await.unwrap();
    assert_eq!(story.text(), "32 xyz", "the first answer is for the first time");
    let declined = TestCall::tool("t", json!({})).decline("a").answer("b", json!({ "text": "y" }));
    let story = declined.run(&fleet()).await.unwrap();
    assert!(story.is_error() && story.text().contains("\"a\""), "{story:?}");
}

/// Whatever goes wrong, the person is asked the same, the call comes to the same, and what ran again did so under one key.
#[tokio::test]
async fn faults_change_only_how_often_steps_run() {
    for (fault, round, hold, pay) in [
        (Fault::ResponseLost, 1, 2, 1),
        (Fault::ResponseLost, 2, 1, 2),
        (Fault::Duplicate, 2, 1, 2),
        (Fault::Disconnect, 2, 1, 2),
        (Fault::StaleRequest, 2, 2, 1),
        (Fault::StaleRequest, 3, 1, 2),
        (Fault::Reordered, 2, 1, 1),
        (Fault::WrongPrincipal, 2, 1, 1),
        (Fault::WrongPrincipal, 3, 1, 1),
        (Fault::Duplicate, 1, 2, 1),
    ] {
        let story = call().fault(round, fault).run(&fleet()).await.unwrap();
        assert_eq!(story.text(), "32 xyz", "{fault:?}");
        assert_eq!(story.rounds(), [vec!["a", "b"], vec!["c"]], "{fault:?}");
        assert_eq!(
            (story.step_runs("hold"), story.step_runs("pay")),
            (hold, pay),
            "{fault:?} in {round}"
        );
        let mut keys: Vec<_> = story.steps().iter().filter(|step| step.key == "pay").collect();
        keys.dedup();
        assert_eq!(keys.len(), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn faults_of_one_round_apply_in_order() {
    let twice_and_lost = call().fault(1, Fault::Duplicate).fault(1, Fault::ResponseLost);
    assert_eq!(twice_and_lost.run(&fleet()).await.unwrap().step_runs("hold"), 4);
    let lost_and_twice = call().fault(1, Fault::ResponseLost).fault(1, Fault::Duplicate);
    assert_eq!(lost_and_twice.run(&fleet()).await.unwrap().step_runs("hold"), 3);
}

/// What a test has not foreseen, it hears of.
#[tokio::test]
async fn unexpected_questions_rounds_and_faults_fail_the_run() {
    let none =
        TestCall::tool("t", json!({})).answer("a", json!({ "text": "x" })).run(&fleet()).await;
    assert!(matches!(&none, Err(TestError::NoAnswer { key, .. }) if key == "b"), "{none:?}");

    let rounds = call().max_rounds(1).run(&fleet()).await.unwrap_err();
    assert_eq!(
        rounds.to_string(),
        r#"the call takes more than 1 rounds; requested were [["a", "b"], ["c"]]"#
    );

    // A handler that does not mind whose state it is: one for each caller alike.
    let clock = TestClock::default();
    let tool =
        Tool::manual(
            "t",
            "",
            async |cx: ManualContext| {
                if cx.unsolicited_answers().is_empty() { "anybody" } else { "?" }
            },
        );
    let open = Replicas::new([replica(&clock).tool(tool).build().unwrap()]).as_principal(alice());
    for (round, fault) in [
        (0, Fault::ResponseLost),
        (2, Fault::ResponseLost),
        (1, Fault::StaleRequest),
        (1, Fault::Reordered),
        (1, Fault::WrongPrincipal),
    ] {
        let unhappened = call().fault(round, fault).run(&open).await.unwrap_err();
        assert_eq!(unhappened, TestError::FaultNotInjected { round, fault });
    }

    let unwritten = TestCall::tool("t", std::collections::HashMap::from([((1, 2), 3)]));
    assert!(matches!(unwritten.run(&fleet()).await, Err(TestError::InvalidCall(_))));
    let nobody = call().run(&Replicas::new([])).await;
    assert!(matches!(nobody, Err(TestError::InvalidCall(_))), "{nobody:?}");
}

/// The server's refusals are part of the story.
#[tokio::test]
async fn transcript_reports_server_errors() {
    let story = TestCall::tool("unknown", json!({})).run(&fleet()).await.unwrap();
    assert_eq!((story.outcome.as_ref().unwrap_err().code, story.is_error()), (-32602, true));
    let story = call().capabilities(json!({})).run(&fleet()).await.unwrap();
    assert_eq!(story.outcome.as_ref().unwrap_err().code, -32021);
    assert_eq!(story.steps().len(), 1);
}

/// Prompts and resource templates ask in the same way.
#[tokio::test]
async fn test_call_supports_prompts_and_resources() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Name {
        name: String,
    }
    let clock = TestClock::default();
    let server = || {
        let prompt =
            Prompt::new("p", "", async |cx: Context, Name { name }| -> mrtr_server::Result<_> {
                let a = cx.elicit::<Text>("a", format!("{name}?")).await?;
                Ok(a.text)
            });
        let template = ResourceTemplate::new(
            "file:///{name}",
            "t",
            async |cx: Context, n: Name| -> mrtr_server::Result<_> {
                let a = cx.elicit::<Text>("a", format!("{}?", n.name)).await?;
                Ok(ResourceOutput::text(a.text))
            },
        );
        replica(&clock).prompt(prompt).resource_template(template).build().unwrap()
    };
    let fleet = Replicas::new([server(), server()]).as_principal(alice());
    for (call, pointer) in [
        (TestCall::prompt("p", json!({ "name": "n" })), "/messages/0/content/text"),
        (TestCall::resource("file:///n"), "/contents/0/text"),
    ] {
        let call = call.answer("a", json!({ "text": "x" })).fault(2, Fault::ResponseLost);
        let story = call.run(&fleet).await.unwrap();
        assert_eq!(story.outcome.as_ref().unwrap().pointer(pointer), Some(&json!("x")));
        assert_eq!(story.question("a").unwrap()["params"]["message"], "n?");
    }
}
