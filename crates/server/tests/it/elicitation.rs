//! Input requests and the capabilities they need, which a client declares with each request.

use mrtr_schema::sampling::CreateMessageParams;
use mrtr_server::manual::{InputRequired, ManualContext};
use mrtr_server::{ClientFeature, Context, ElicitOutcome, Error, Result, Tool};
use mrtr_testkit::Replicas;
use serde_json::{Value, json};

use crate::support::{Text, fleet, send_request};

/// Calls the tool `t` as a client with these capabilities.
async fn call(fleet: &Replicas, capabilities: Value, more: Value) -> Value {
    let mut params = json!({ "name": "t", "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    } });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    send_request(fleet, "tools/call", params).await
}

fn sampling(more: &Value) -> CreateMessageParams {
    let mut params = serde_json::to_value(CreateMessageParams::user("?", 5)).unwrap();
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(params).unwrap()
}

async fn ask(cx: Context, what: &str) -> Result<String> {
    match what {
        "form" => drop(cx.elicit::<Text>("q", "?").await?),
        "url" => cx.elicit_url("q", "Go", "https://a.example").await?,
        "roots" => drop(cx.roots("q").await?),
        "sampling" => drop(cx.sample("q", sampling(&json!({}))).await?),
        "tools" => drop(cx.sample("q", sampling(&json!({ "tools": [] }))).await?),
        "choice" => {
            drop(cx.sample("q", sampling(&json!({ "toolChoice": { "mode": "none" } }))).await?);
        }
        _ => drop(cx.sample("q", sampling(&json!({ "includeContext": "allServers" }))).await?),
    }
    Ok("asked".to_owned())
}

/// Asks the same question in the manual form.
fn manual(what: &str) -> InputRequired {
    let asks = InputRequired::new();
    match what {
        "form" => asks.elicit::<Text>("q", "?"),
        "url" => asks.elicit_url("q", "Go", "https://a.example"),
        "roots" => asks.roots("q"),
        "sampling" => asks.sample("q", sampling(&json!({}))),
        "tools" => asks.sample("q", sampling(&json!({ "tools": [] }))),
        "choice" => asks.sample("q", sampling(&json!({ "toolChoice": { "mode": "none" } }))),
        _ => asks.sample("q", sampling(&json!({ "includeContext": "allServers" }))),
    }
}

#[tokio::test]
async fn undeclared_capabilities_are_reported_as_required() {
    let forms = json!({ "elicitation": {} });
    for (what, declared, undeclared, required) in [
        (
            "form",
            &forms,
            json!({ "elicitation": { "url": {} } }),
            json!({ "elicitation": { "form": {} } }),
        ),
        (
            "form",
            &json!({ "elicitation": { "form": {} } }),
            json!({}),
            json!({ "elicitation": { "form": {} } }),
        ),
        (
            "url",
            &json!({ "elicitation": { "url": {} } }),
            forms.clone(),
            json!({ "elicitation": { "url": {} } }),
        ),
        ("roots", &json!({ "roots": {} }), forms.clone(), json!({ "roots": {} })),
        ("sampling", &json!({ "sampling": {} }), forms.clone(), json!({ "sampling": {} })),
        (
            "tools",
            &json!({ "sampling": { "tools": {} } }),
            json!({ "sampling": { "context": {} } }),
            json!({ "sampling": { "tools": {} } }),
        ),
        (
            "choice",
            &json!({ "sampling": { "tools": {} } }),
            json!({ "sampling": {} }),
            json!({ "sampling": { "tools": {} } }),
        ),
        (
            "context",
            &json!({ "sampling": { "context": {} } }),
            json!({ "sampling": { "tools": {} } }),
            json!({ "sampling": { "context": {} } }),
        ),
    ] {
        let inline = fleet(|| Tool::new("t", "", move |cx: Context| ask(cx, what)));
        let manual_form = fleet(|| {
            Tool::manual("t", "", move |_: ManualContext| std::future::ready(manual(what)))
        });
        for fleet in [&inline, &manual_form] {
            let asked = call(fleet, declared.clone(), json!({})).await;
            assert_eq!(asked["resultType"], "input_required", "{what}: {asked}");
            let refused = call(fleet, undeclared.clone(), json!({})).await;
            assert_eq!(refused["error"]["code"], -32021, "{what}: {refused}");
            assert_eq!(refused["error"]["data"]["requiredCapabilities"], required, "{what}");
        }
    }
}

/// A call can be continued by another client, or by an updated one.
#[tokio::test]
async fn capabilities_are_those_of_the_current_request() {
    let fleet = fleet(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            cx.elicit::<Text>("a", "?").await?;
            cx.elicit::<Text>("b", "?").await?;
            Ok("done")
        })
    });
    let first = call(&fleet, json!({ "elicitation": {}, "x-new": { "y": 1 } }), json!({})).await;
    let answer = json!({
        "requestState": first["requestState"],
        "inputResponses": { "a": { "action": "accept", "content": { "text": "x" } } },
    });
    let without = call(&fleet, json!({}), answer.clone()).await;
    assert_eq!(without["error"]["code"], -32021, "{without}");
    let with = call(&fleet, json!({ "elicitation": {} }), answer).await;
    assert!(with["inputRequests"]["b"].is_object(), "{with}");
}

#[tokio::test]
async fn elicit_url_tells_consent_refusal_and_cancellation_apart() {
    let fleet = fleet(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let url = "https://a.example/login?flow=1";
            let outcome = cx.elicit_url("q", "Please log in", url).await;
            Ok(match outcome {
                Ok(()) => "went",
                Err(error) if error.is_declined() => "declined",
                Err(error) if error.is_cancelled() => "cancelled",
                Err(error) => return Err(error),
            })
        })
    });
    let capabilities = json!({ "elicitation": { "url": {} } });
    let first = call(&fleet, capabilities.clone(), json!({})).await;
    let question = json!({ "method": "elicitation/create", "params": {
        "mode": "url", "message": "Please log in", "url": "https://a.example/login?flow=1",
    } });
    assert_eq!(first["inputRequests"]["q"], question);
    for (action, text) in [("accept", "went"), ("decline", "declined"), ("cancel", "cancelled")] {
        let more = json!({
            "requestState": first["requestState"], "inputResponses": { "q": { "action": action } },
        });
        let result = call(&fleet, capabilities.clone(), more).await;
        assert_eq!(result["content"][0]["text"], text);
    }
}

#[tokio::test]
async fn elicit_outcome_tells_accept_decline_and_cancel_apart() {
    let fleet = fleet(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            Ok(match cx.elicit::<Text>("q", "?").outcome().await? {
                ElicitOutcome::Accept(text) => text.text,
                ElicitOutcome::Decline => "declined".to_owned(),
                ElicitOutcome::Cancel => "cancelled".to_owned(),
            })
        })
    });
    let first = call(&fleet, json!({ "elicitation": {} }), json!({})).await;
    for (action, text) in [("accept", "x"), ("decline", "declined"), ("cancel", "cancelled")] {
        let answer = json!({ "action": action, "content": { "text": "x" } });
        let more =
            json!({ "requestState": first["requestState"], "inputResponses": { "q": answer } });
        let result = call(&fleet, json!({ "elicitation": {} }), more).await;
        assert_eq!(result["content"][0]["text"], text);
    }
}

#[tokio::test]
async fn forbidden_questions_are_internal_errors() {
    let all = json!({ "elicitation": { "url": {} }, "sampling": { "tools": {} } });
    for url in ["javascript:alert(1)", "no url", "file:///x"] {
        let inline = fleet(|| {
            Tool::new("t", "", move |cx: Context| async move {
                cx.elicit_url("q", "Go", url).await?;
                Ok::<_, Error>("went")
            })
        });
        let manual_form = fleet(|| {
            let ask = move || InputRequired::new().elicit_url("q", "Go", url);
            Tool::manual("t", "", move |_: ManualContext| std::future::ready(ask()))
        });
        for fleet in [inline, manual_form] {
            let refused = call(&fleet, all.clone(), json!({})).await;
            assert_eq!(refused["error"]["code"], -32603, "{url}: {refused}");
        }
    }
    let alone = fleet(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let result = json!({ "type": "tool_result", "toolUseId": "1", "content": [] });
            let messages = json!({ "messages": [{ "role": "user", "content": result }] });
            cx.sample("q", sampling(&messages)).await?;
            Ok("sampled")
        })
    });
    let refused = call(&alone, all, json!({})).await;
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
}

/// An invalid answer is asked for again.
#[tokio::test]
async fn invalid_roots_are_asked_again() {
    let fleet = fleet(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let roots = cx.roots("q").await?;
            Ok(roots.into_iter().map(|root| root.uri).collect::<String>())
        })
    });
    let roots = json!({ "roots": {} });
    let first = call(&fleet, roots.clone(), json!({})).await;
    for (uri, fits) in [("file:///work", true), ("file:///a/../b", false), ("https://a", false)] {
        let more = json!({
            "requestState": first["requestState"],
            "inputResponses": { "q": { "roots": [{ "uri": uri }] } },
        });
        let result = call(&fleet, roots.clone(), more).await;
        assert_eq!(result["content"][0]["text"] == uri, fits, "{result}");
        assert_eq!(result["resultType"] == "input_required", !fits, "{result}");
    }
}

/// As content that the server did not ask for.
#[tokio::test]
async fn invalid_sampling_results_are_asked_for_again() {
    let fleet = fleet(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            Ok(cx.sample("q", sampling(&json!({}))).await?.content.joined_text())
        })
    });
    let declared = json!({ "sampling": {} });
    let first = call(&fleet, declared.clone(), json!({})).await;
    for (content, fits) in [
        (json!({ "type": "text", "text": "x" }), true),
        (json!({ "type": "image", "data": "no base64", "mimeType": "image/png" }), false),
        (json!({ "type": "tool_use", "id": "1", "name": "t", "input": {} }), false),
        (json!({ "type": "tool_result", "toolUseId": "1", "content": [] }), false),
    ] {
        let sampled = json!({ "role": "assistant", "model": "m", "content": content });
        let more = json!({
            "requestState": first["requestState"], "inputResponses": { "q": sampled },
        });
        let result = call(&fleet, declared.clone(), more).await;
        assert_eq!(result["resultType"] == "input_required", !fits, "{result}");
        assert_eq!(result["content"][0]["text"] == "x", fits, "{result}");
    }
}

#[tokio::test]
async fn requires_rejects_clients_before_the_handler_runs() {
    let fleet = fleet(|| {
        Tool::new("t", "", async |_: Context| -> Result<String> { Err(Error::new("it ran")) })
            .requires([ClientFeature::Form, ClientFeature::Roots])
    });
    let refused = call(&fleet, json!({ "roots": {} }), json!({})).await;
    assert_eq!(
        refused["error"]["data"]["requiredCapabilities"],
        json!({ "elicitation": { "form": {} } })
    );
}
