//! What else is forwarded: completion, log messages, trace contexts, changes of resources.

use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use mrtr_client::{Client, SubscriptionEvent};
use mrtr_gateway::Gateway;
use mrtr_schema::completion::{CompleteArgument, CompleteContext, Completion, Reference};
use mrtr_schema::jsonrpc::{ErrorObject, Notification, Response};
use mrtr_schema::meta::TraceContext;
use mrtr_schema::notification::{LogLevel, LogMessage};
use mrtr_schema::subscription::SubscriptionFilter;
use mrtr_schema::subscription::{Changed, name};
use mrtr_schema::{Object, RawJson};
use mrtr_server::Principal;
use mrtr_server::manual::ManualContext;
use mrtr_server::{
    Change, ChangeNotifier, CompletionRequest, Context, Error, Prompt, Resource, ResourceTemplate,
    Result, Server, ServerBuilder, Tool, ToolOutput, too_many_requests,
};
use mrtr_transport::{
    InProcess, IncomingRequest, OutgoingRequest, RequestHandler, Transport, TransportError,
};
use serde_json::json;
use serde_json::value::RawValue;

use super::{caller, connect, gateway, gateway_server, keyed, run, upstream};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Page {
    #[serde(rename = "id")]
    _id: String,
    #[serde(rename = "lang")]
    _lang: String,
}

/// An upstream whose completions say what they were asked.
fn completing() -> Server {
    async fn suggest(request: CompletionRequest) -> Result<Completion> {
        let CompletionRequest { argument, value, arguments, .. } = &request;
        let text = format!("{argument}={value} {arguments:?}");
        // As if there were more than fits into a result.
        Ok(Completion::new(vec![text]).with_total(1_000_u64).with_has_more(true))
    }
    let page = async |_: Context, _: Page| "x";
    keyed("u", 2)
        .prompt(Prompt::new("p", "", page).complete_others(suggest))
        .resource_template(
            ResourceTemplate::new("doc://{id}/{lang}", "d", page).complete_others(suggest),
        )
        .build()
        .unwrap()
}

#[tokio::test]
async fn completion_reaches_the_upstream_with_its_own_names() {
    let server = completing();
    let gateway = gateway(&[("u", &server)]).await;
    let client = caller(&gateway, "alice").build();
    let context = CompleteContext::new([("lang".to_owned(), "en".to_owned())].into());
    let expected = Completion::new(vec![r#"id=4 {"lang": "en"}"#.to_owned()]);
    let expected = expected.with_total(1_000_u64).with_has_more(true);
    for reference in [
        Reference::Prompt { name: "u__p".to_owned() },
        Reference::Resource { uri: "doc://{id}/{lang}".to_owned() },
    ] {
        let argument = CompleteArgument::new("id", "4");
        let completion = client.complete(&reference, &argument, &context).await.unwrap();
        assert_eq!(completion, expected);
    }
    let unknown = Reference::Prompt { name: "p".to_owned() };
    let argument = CompleteArgument::new("id", "4");
    assert!(client.complete(&unknown, &argument, &context).await.is_err());
}

/// The gateway does not ask an upstream that declares no completions.
#[tokio::test]
async fn upstream_without_completion_is_not_asked() {
    let page = async |_: Context, _: Page| "x";
    let server = keyed("u", 2).prompt(Prompt::new("p", "", page)).build().unwrap();
    let gateway = gateway(&[("u", &server)]).await;
    let client = caller(&gateway, "alice").build();
    let reference = Reference::Prompt { name: "u__p".to_owned() };
    let argument = CompleteArgument::new("id", "4");
    let completion = client.complete(&reference, &argument, &CompleteContext::default()).await;
    assert_eq!(completion.unwrap(), Completion::from(Vec::new()));
}

#[tokio::test]
async fn log_messages_reach_the_caller_at_the_level_that_it_asked_for() {
    let tool = Tool::manual("t", "", async |cx: ManualContext| {
        cx.log(&LogMessage::new(LogLevel::Debug, "details"));
        cx.log(&LogMessage::new(LogLevel::Warning, json!({ "rows": 3 })).with_logger("import"));
        ToolOutput::text("done")
    });
    let server = upstream("u", [tool]);
    let gateway = gateway(&[("u", &server)]).await;
    let seen: Arc<Mutex<Vec<LogMessage>>> = Arc::default();
    let client = caller(&gateway, "alice").build();
    client.call_tool("u__t", json!({})).await.unwrap();
    let client = client.with_log(LogLevel::Info, {
        let seen = Arc::clone(&seen);
        move |message| seen.lock().unwrap().push(message)
    });
    client.call_tool("u__t", json!({})).await.unwrap();
    let expected = LogMessage::new(LogLevel::Warning, json!({ "rows": 3 })).with_logger("import");
    assert_eq!(*seen.lock().unwrap(), [expected]);
}

/// A connection that carries several requests, and cannot tell to which one a log message belongs.
struct Shared(InProcess<Server>);

impl Transport for Shared {
    async fn send(
        &self,
        outgoing: OutgoingRequest<'_>,
    ) -> std::result::Result<Response<Box<RawValue>>, TransportError> {
        let meta = outgoing.request.params.as_ref().unwrap().as_str().to_owned();
        assert!(!meta.contains("logLevel"), "{meta}");
        // A question that names no call is not for this caller either.
        let is_call = outgoing.request.method == "tools/call";
        assert_eq!(outgoing.caller.is_some(), is_call, "{meta}");
        self.0.send(outgoing).await
    }
}

/// Otherwise the messages of one caller could reach another one.
#[tokio::test]
async fn no_logs_are_requested_over_a_connection_that_cannot_tell_requests_apart() {
    let tool = Tool::manual("t", "", async |_: ManualContext| ToolOutput::text("done"));
    let server = upstream("u", [tool]);
    let principal = Principal::new("https://login.example", "the gateway");
    let transport = Shared(InProcess::new(server).with_extension(principal));
    let gateway = Gateway::builder()
        .upstream("u", Client::builder(transport).build())
        .build(gateway_server())
        .unwrap();
    gateway.refresh().await;
    let client = connect(gateway.server(), "alice").build();
    let client = client.with_log(LogLevel::Debug, |message| panic!("{message:?}"));
    assert_eq!(client.call_tool("u__t", json!({})).await.unwrap().text(), "done");
}

/// Its limit is that of the gateway, which all callers share.
#[tokio::test]
async fn rate_limit_of_an_upstream_is_not_that_of_the_caller() {
    let tool = Tool::new("t", "", async |_: Context| -> Result<String> {
        Err(Error::response(too_many_requests(std::time::Duration::from_secs(9_999))))
    });
    let server = upstream("u", [tool]);
    let gateway = gateway(&[("u", &server)]).await;
    let client = caller(&gateway, "alice").build();
    let error = client.call_tool("u__t", json!({})).await.unwrap_err();
    let error = error.as_server_error().unwrap();
    assert_eq!((error.code, &*error.message), (-32603, "The upstream server is overloaded"));
    assert_eq!(error.data, None);
}

#[tokio::test]
async fn trace_of_the_caller_continues_upstream() {
    let tool = Tool::new("t", "", async |cx: Context| {
        cx.parts().trace_context().map_or_else(String::new, |context| {
            context.traceparent + context.baggage.as_deref().unwrap_or_default()
        })
    });
    let server = upstream("u", [tool]);
    let gateway = gateway(&[("u", &server)]).await;
    let client = caller(&gateway, "alice").build();
    assert_eq!(client.call_tool("u__t", json!({})).await.unwrap().text(), "");
    let context = TraceContext::new(TRACE).with_baggage("user=alice");
    let client = client.with_trace_context(context);
    assert_eq!(client.call_tool("u__t", json!({})).await.unwrap().text(), TRACE);
}

/// An upstream with resources, and what publishes their changes.
fn changing(scheme: &str) -> (Server, ChangeNotifier) {
    let changes = ChangeNotifier::new();
    (with_resources(scheme).changes(changes.clone()).build().unwrap(), changes)
}

fn with_resources(scheme: &str) -> ServerBuilder {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Id {
        #[serde(rename = "id")]
        _id: String,
    }
    keyed(scheme, 2)
        .resource(Resource::new(format!("{scheme}://one"), "one", async || "x"))
        .resource_template(ResourceTemplate::new(
            format!("{scheme}://page/{{id}}"),
            "page",
            async |_: Context, _: Id| "x",
        ))
}

async fn watch(
    client: &Client<InProcess<Server>>,
    uris: &[&str],
) -> (SubscriptionFilter, mrtr_client::Subscription) {
    let filter = SubscriptionFilter::new();
    let filter = uris.iter().fold(filter, |filter, uri| filter.with_resource(*uri));
    let mut subscription = client.listen(&filter).unwrap();
    match subscription.next().await {
        Some(Ok(SubscriptionEvent::Acknowledged(granted))) => (granted, subscription),
        other => panic!("{other:?}"),
    }
}

/// Returns the next two events, in alphabetical order.
async fn two_events(watched: &mut mrtr_client::Subscription) -> [SubscriptionEvent; 2] {
    let mut events = [(); 2].map(|()| None);
    for event in &mut events {
        *event = watched.next().await;
    }
    let mut events = events.map(|event| event.unwrap().unwrap());
    events.sort_by_key(|event| format!("{event:?}"));
    events
}

/// Waits, in virtual time, until an upstream has this many subscriptions. One is for lists.
async fn wait_for(changes: &ChangeNotifier, listeners: usize) {
    for _ in 0..1_000 {
        if changes.listeners() == listeners {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{} subscriptions instead of {listeners}", changes.listeners());
}

/// The limit is for all callers of the gateway.
#[tokio::test(start_paused = true)]
async fn a_caller_with_many_subscriptions_leaves_room_for_others() {
    let (one, changes) = changing("one");
    let gateway = gateway(&[("one", &one)]).await;
    let running = run(&gateway);
    wait_for(&changes, 1).await;
    let many: Vec<_> = (0..300).map(|n| format!("one://page/{n:03}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let (granted, _all) = watch(&caller(&gateway, "alice").build(), &many).await;
    assert_eq!(granted.resource_subscriptions.len(), 300);
    wait_for(&changes, 129).await;
    let (_, mut watched) = watch(&caller(&gateway, "bob").build(), &["one://page/zz"]).await;
    let updated = SubscriptionEvent::ResourceUpdated("one://page/zz".to_owned());
    let minutes = std::time::Duration::from_mins(5);
    let next = tokio::time::timeout(minutes, watched.next()).await;
    assert_eq!(next.unwrap().unwrap().unwrap(), updated);
    wait_for(&changes, 129).await;
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn changes_of_resources_reach_those_who_subscribed() {
    let ((one, one_changes), (two, two_changes)) = (changing("one"), changing("two"));
    let gateway = gateway(&[("one", &one), ("two", &two)]).await;
    let running = run(&gateway);
    wait_for(&one_changes, 1).await;
    let client = caller(&gateway, "alice").build();
    let (granted, mut first) = watch(&client, &["one://one", "two://page/7", "other://x"]).await;
    assert_eq!(granted.resource_subscriptions, ["one://one", "two://page/7"]);
    wait_for(&one_changes, 2).await;
    wait_for(&two_changes, 2).await;
    // Both may have changed before the upstream was asked to report it.
    let updated = |uri: &str| SubscriptionEvent::ResourceUpdated(uri.to_owned());
    assert_eq!(two_events(&mut first).await, [updated("one://one"), updated("two://page/7")]);
    // Published by the wrong upstream, or not subscribed to.
    two_changes.publish(Change::Resource("one://one".to_owned()));
    two_changes.publish(Change::Resource("two://page/8".to_owned()));
    one_changes.publish(Change::Resource("one://one".to_owned()));
    assert_eq!(first.next().await.unwrap().unwrap(), updated("one://one"));
    two_changes.publish(Change::Resource("two://page/7".to_owned()));
    assert_eq!(first.next().await.unwrap().unwrap(), updated("two://page/7"));

    // A second caller watches the same and more, and the first one leaves.
    let other = caller(&gateway, "bob").build();
    let (_, mut second) = watch(&other, &["one://one", "one://page/9"]).await;
    drop(first);
    wait_for(&two_changes, 1).await;
    wait_for(&one_changes, 3).await;
    assert_eq!(second.next().await.unwrap().unwrap(), updated("one://page/9"));
    // Many changes in a short time are one.
    for _ in 0..100 {
        one_changes.publish(Change::Resource("one://one".to_owned()));
    }
    assert_eq!(second.next().await.unwrap().unwrap(), updated("one://one"));
    one_changes.publish(Change::Resource("one://page/9".to_owned()));
    assert_eq!(second.next().await.unwrap().unwrap(), updated("one://page/9"));
    drop(second);
    wait_for(&one_changes, 1).await;
    running.abort();
}

/// A client that is told so reads it again from time to time.
#[tokio::test(start_paused = true)]
async fn subscription_to_a_resource_whose_upstream_does_not_report_changes_is_not_acknowledged() {
    let (reporting, _changes) = changing("one");
    let silent = with_resources("two").build().unwrap();
    let gateway = gateway(&[("one", &reporting), ("two", &silent)]).await;
    let uris = ["one://one", "one://page/1", "two://one", "two://page/1"];
    let (granted, _) = watch(&caller(&gateway, "alice").build(), &uris).await;
    assert_eq!(granted.resource_subscriptions, ["one://one", "one://page/1"]);
}

/// A server that reports a change of this resource in every subscription to a resource, whether it
/// has it or not.
struct Liar(Server, &'static str);

impl RequestHandler for Liar {
    async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> Response<RawJson> {
        let params = incoming.request.params.as_ref().map(|params| params.as_str().to_owned());
        let lies = params.is_some_and(|params| params.contains("resourceSubscriptions\":[\""));
        let notifications = incoming.notifications.clone();
        let answering = Arc::new(self.0.clone()).handle(incoming);
        let lying = async {
            if lies {
                tokio::task::yield_now().await;
                let lie = Changed::new(Object::new()).with_uri(self.1);
                let lie = Notification::new(name::RESOURCE_UPDATED, &lie).unwrap();
                notifications.send(lie).await;
            }
        };
        tokio::join!(answering, lying).0
    }
}

/// Both subscribe at the same time, so the first change shows whether lies pass.
#[tokio::test(start_paused = true)]
async fn upstream_cannot_report_changes_of_another_one() {
    let ((one, _one), (two, two_changes)) = (changing("one"), changing("two"));
    let client = |server, lie| {
        let principal = Principal::new("https://login.example", "the gateway");
        Client::builder(InProcess::new(Liar(server, lie)).with_extension(principal)).build()
    };
    let gateway = Gateway::builder()
        .upstream("one", client(one, "two://one"))
        .upstream("two", client(two, "two://page/8"))
        .build(gateway_server())
        .unwrap();
    gateway.refresh().await;
    let gateway = Arc::new(gateway);
    let running = run(&gateway);
    let alice = connect(gateway.server(), "alice").build();
    let (_, mut watched) = watch(&alice, &["one://one", "two://one"]).await;
    wait_for(&two_changes, 2).await;
    let mut at_first =
        [watched.next().await.unwrap().unwrap(), watched.next().await.unwrap().unwrap()];
    at_first.sort_by_key(|event| format!("{event:?}"));
    let updated = |uri: &str| SubscriptionEvent::ResourceUpdated(uri.to_owned());
    assert_eq!(at_first, [updated("one://one"), updated("two://one")]);
    let quiet = tokio::time::timeout(std::time::Duration::from_mins(5), watched.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    two_changes.publish(Change::Resource("two://one".to_owned()));
    assert_eq!(watched.next().await.unwrap().unwrap(), updated("two://one"));
    running.abort();
}

/// A server that refuses to report changes of one resource.
struct Refusing(Server, &'static str);

impl RequestHandler for Refusing {
    async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> Response<RawJson> {
        let params = incoming.request.params.as_ref().map_or("", |params| params.as_str());
        if incoming.request.method == "subscriptions/listen" && params.contains(self.1) {
            return Response::error(Some(incoming.request.id), ErrorObject::invalid_params("No"));
        }
        Arc::new(self.0.clone()).handle(incoming).await
    }
}

/// Otherwise one caller could stop the changes for all others.
#[tokio::test(start_paused = true)]
async fn resource_that_is_refused_concerns_no_other() {
    let (server, changes) = changing("one");
    let principal = Principal::new("https://login.example", "the gateway");
    let transport = InProcess::new(Refusing(server, "one://page/bad")).with_extension(principal);
    let gateway = Gateway::builder()
        .upstream("one", Client::builder(transport).build())
        .build(gateway_server())
        .unwrap();
    gateway.refresh().await;
    let gateway = Arc::new(gateway);
    let running = run(&gateway);
    let alice = connect(gateway.server(), "alice").build();
    let (_, mut watched) = watch(&alice, &["one://one"]).await;
    let updated = SubscriptionEvent::ResourceUpdated("one://one".to_owned());
    assert_eq!(watched.next().await.unwrap().unwrap(), updated);
    let bob = connect(gateway.server(), "bob").build();
    let _refused = watch(&bob, &["one://page/bad"]).await;
    tokio::time::sleep(std::time::Duration::from_mins(5)).await;
    changes.publish(Change::Resource("one://one".to_owned()));
    assert_eq!(watched.next().await.unwrap().unwrap(), updated);
    running.abort();
}

/// An upstream that ends a subscription gets it again, and what may have been missed counts as a
/// change.
#[tokio::test(start_paused = true)]
async fn subscription_that_ends_is_opened_again() {
    let (first, first_changes) = changing("one");
    let gateway = Gateway::builder()
        .upstream("one", connect(&first, "the gateway").build())
        .build(gateway_server())
        .unwrap();
    let gateway = Arc::new(gateway);
    gateway.refresh().await;
    let running = run(&gateway);
    let client = caller(&gateway, "alice").build();
    let (_, mut watched) = watch(&client, &["one://one"]).await;
    wait_for(&first_changes, 2).await;
    let updated = SubscriptionEvent::ResourceUpdated("one://one".to_owned());
    assert_eq!(watched.next().await.unwrap().unwrap(), updated);
    // Ends all subscriptions, and each new one at once.
    first_changes.close();
    let next = tokio::time::timeout(std::time::Duration::from_mins(5), watched.next()).await;
    assert_eq!(next.unwrap().unwrap().unwrap(), updated);
    running.abort();
}
