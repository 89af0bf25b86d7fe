//! The module `testing`, with which authors test their own handlers.

use mrtr_server::manual::ManualContext;
use mrtr_server::testing::{Fault, Replicas, TestCall, TestClock, TestError};
use mrtr_server::{Context, Prompt, ResourceOutput, ResourceTemplate, Tool};
use serde_json::json;

use crate::support::{Text, alice, replica};

/// Returns a tool with a step, two questions in one round, a step, and another question.
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
    let transcript = call().run(&fleet()).await.unwrap();
    assert_eq!((transcript.text(), transcript.is_error()), ("32 xyz", false));
    assert_eq!(transcript.rounds(), [vec!["a", "b"], vec!["c"]]);
    assert_eq!(transcript.question("c").unwrap()["params"]["message"], "x and y?");
    assert_eq!(
        (transcript.step_runs("hold"), transcript.step_runs("pay"), transcript.step_runs("other")),
        (1, 1, 0)
    );
    assert_eq!(transcript.steps()[0].idempotency_key.len(), 32);
    assert!((200..2000).contains(&transcript.largest_state()), "{}", transcript.largest_state());

    let transcript =
        call().respond("a", json!({ "action": "decline" })).run(&fleet()).await.unwrap();
    assert_eq!(transcript.text(), "32 xyz", "the first answer of a key is used first");
    let declined = TestCall::tool("t", json!({})).decline("a").answer("b", json!({ "text": "y" }));
    let transcript = declined.run(&fleet()).await.unwrap();
    assert!(transcript.is_error() && transcript.text().contains("\"a\""), "{transcript:?}");
}

/// Under every fault, the questions and the result are the same, and repeated steps keep their key.
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
        let transcript = call().fault(round, fault).run(&fleet()).await.unwrap();
        assert_eq!(transcript.text(), "32 xyz", "{fault:?}");
        assert_eq!(transcript.rounds(), [vec!["a", "b"], vec!["c"]], "{fault:?}");
        assert_eq!(
            (transcript.step_runs("hold"), transcript.step_runs("pay")),
            (hold, pay),
            "{fault:?} in {round}"
        );
        let mut keys: Vec<_> = transcript.steps().iter().filter(|step| step.key == "pay").collect();
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

/// A test fails on everything that it does not expect.
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

    // This handler completes in its first round, so that no later round can get a fault.
    let clock = TestClock::default();
    let tool =
        Tool::manual(
            "t",
            "",
            async |cx: ManualContext| {
                if cx.unsolicited_answers().is_empty() { "anyone" } else { "?" }
            },
        );
    let open = Replicas::new([replica(&clock).tool(tool).build().unwrap()]).as_principal(alice());
    for (round, fault) in [
        (0, Fault::ResponseLost),
        (2, Fault::ResponseLost),
        (1, Fault::StaleRequest),
        (1, Fault::Reordered),
        (1, Fault::WrongPrincipal),
        // The handler does not wait.
        (1, Fault::Disconnect),
    ] {
        let unhappened = call().fault(round, fault).run(&open).await.unwrap_err();
        assert_eq!(unhappened, TestError::FaultNotInjected { round, fault });
    }

    let unwritten = TestCall::tool("t", std::collections::HashMap::from([((1, 2), 3)]));
    assert!(matches!(unwritten.run(&fleet()).await, Err(TestError::InvalidCall(_))));
    let no_replicas = call().run(&Replicas::new([])).await;
    assert!(matches!(no_replicas, Err(TestError::InvalidCall(_))), "{no_replicas:?}");
}

/// Errors of the server are part of the transcript.
#[tokio::test]
async fn transcript_reports_server_errors() {
    let transcript = TestCall::tool("unknown", json!({})).run(&fleet()).await.unwrap();
    assert_eq!(
        (transcript.outcome.as_ref().unwrap_err().code, transcript.is_error()),
        (-32602, true)
    );
    let transcript = call().capabilities(json!({})).run(&fleet()).await.unwrap();
    assert_eq!(transcript.outcome.as_ref().unwrap_err().code, -32021);
    assert_eq!(transcript.steps().len(), 1);
}

/// Prompts and resource templates ask as tools do.
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
        let transcript = call.run(&fleet).await.unwrap();
        assert_eq!(transcript.outcome.as_ref().unwrap().pointer(pointer), Some(&json!("x")));
        assert_eq!(transcript.question("a").unwrap()["params"]["message"], "n?");
    }
}
