//! Mistakes that `ServerBuilder::build` reports.

use std::time::Duration;

use mrtr_server::extract::FromRequestParts;
use mrtr_server::tasks::{MemoryTaskStore, TaskPolicy};
use mrtr_server::{
    BuildError, Context, Error, Prompt, RequestParts, Resource, ResourceTemplate, Result, Server,
    ServerBuilder, State, StateRequirements, Tool,
};
use mrtr_testkit::Replicas;
use serde_json::json;

use crate::support::{LogLines, alice, call_tool, ring};

#[derive(Clone)]
struct Pool;

/// An extractor that declares the application state it needs.
struct Connection;

impl FromRequestParts for Connection {
    async fn from_request_parts(parts: &RequestParts) -> Result<Self> {
        let State(Pool) = State::from_request_parts(parts).await?;
        Ok(Self)
    }

    fn state_requirements(requirements: &mut StateRequirements) {
        State::<Pool>::state_requirements(requirements);
    }
}

async fn plain() -> &'static str {
    "x"
}

async fn with_state(_: State<Pool>, _: Context) -> &'static str {
    "x"
}

async fn with_extractor(_: Connection) -> &'static str {
    "x"
}

fn complete() -> ServerBuilder {
    Server::builder("s", "1").require_principal().ephemeral_key()
}

/// Adds a handler to a server; the text is the name that errors give the handler.
type AddHandler = (fn(ServerBuilder) -> ServerBuilder, &'static str);

/// One handler of each kind.
fn one_handler_each() -> [AddHandler; 4] {
    [
        (|server| server.tool(Tool::new("t", "", plain)), "the tool \"t\""),
        (|server| server.prompt(Prompt::new("p", "", plain)), "the prompt \"p\""),
        (|server| server.resource(Resource::new("a:r", "r", plain)), "the resource \"a:r\""),
        (
            |server| server.resource_template(ResourceTemplate::new("a:{r}", "r", plain)),
            "the resource template \"a:{r}\"",
        ),
    ]
}

#[test]
fn build_requires_an_authentication_choice() {
    let server = || Server::builder("s", "1").ephemeral_key();
    assert_eq!(server().build().unwrap_err(), BuildError::NoAuthentication);
    for (add, _) in one_handler_each() {
        assert_eq!(add(server()).build().unwrap_err(), BuildError::NoAuthentication);
        add(server()).require_principal().build().unwrap();
        add(server()).allow_anonymous().build().unwrap();
    }
}

#[test]
fn build_requires_a_key_ring_for_every_kind_of_handler() {
    let server = || Server::builder("s", "1").require_principal();
    for (add, _) in one_handler_each() {
        assert_eq!(add(server()).build().unwrap_err(), BuildError::NoKeyRing);
        add(server()).key_ring(ring()).build().unwrap();
        add(server()).ephemeral_key().build().unwrap();
    }
    // Without a handler, there is no state to seal.
    server().build().unwrap();
}

#[test]
fn build_reports_missing_state_of_handlers_and_of_their_extractors() {
    let missing: [AddHandler; 6] = [
        (|server| server.tool(Tool::new("t", "", with_state)), "the tool \"t\""),
        (|server| server.prompt(Prompt::new("p", "", with_state)), "the prompt \"p\""),
        (|server| server.resource(Resource::new("a:r", "r", with_state)), "the resource \"a:r\""),
        (
            |server| server.resource_template(ResourceTemplate::new("a:{r}", "r", with_state)),
            "the resource template \"a:{r}\"",
        ),
        (|server| server.tool(Tool::new("t", "", with_extractor)), "the tool \"t\""),
        (|server| server.prompt(Prompt::new("p", "", with_extractor)), "the prompt \"p\""),
    ];
    for (add, handler) in missing {
        let error = add(complete()).build().unwrap_err();
        let expected = BuildError::MissingState {
            of: handler.to_owned(),
            missing: std::any::type_name::<Pool>(),
        };
        assert_eq!(error, expected);
        assert!(error.to_string().contains("Pool"), "{error}");
        // State of another type does not help; state of this type does, in any order.
        assert_eq!(add(complete().state(1_u8)).build().unwrap_err(), expected);
        add(complete()).state(Pool).build().unwrap();
        add(complete().state(Pool)).build().unwrap();
    }
}

#[test]
fn build_rejects_two_states_of_one_type() {
    let error = complete().state(Pool).state(1_u8).state(Pool).build().unwrap_err();
    assert_eq!(error, BuildError::DuplicateState(std::any::type_name::<Pool>()));
    complete().state(Pool).state(1_u8).state(1_u16).build().unwrap();
}

/// One option of a handler that is too small, and the smallest valid value.
struct Limit {
    option: &'static str,
    minimum: &'static str,
    invalid: fn() -> [ServerBuilder; 4],
    valid: fn() -> [ServerBuilder; 4],
}

/// Sets an option of one handler of each kind.
macro_rules! with_option {
    ($option:ident($value:expr)) => {
        || {
            [
                complete().tool(Tool::new("t", "", plain).$option($value)),
                complete().prompt(Prompt::new("p", "", plain).$option($value)),
                complete().resource(Resource::new("a:r", "r", plain).$option($value)),
                complete()
                    .resource_template(ResourceTemplate::new("a:{r}", "r", plain).$option($value)),
            ]
        }
    };
}

#[test]
fn build_rejects_timeouts_and_limits_below_their_minimum() {
    for Limit { option, minimum, invalid, valid } in [
        Limit {
            option: "answer_timeout",
            minimum: "1 s",
            invalid: with_option!(answer_timeout(Duration::ZERO)),
            valid: with_option!(answer_timeout(Duration::from_secs(1))),
        },
        Limit {
            option: "answer_timeout",
            minimum: "1 s",
            invalid: with_option!(answer_timeout(Duration::from_millis(999))),
            valid: with_option!(answer_timeout(Duration::MAX)),
        },
        Limit {
            option: "call_timeout",
            minimum: "1 s",
            invalid: with_option!(call_timeout(Duration::ZERO)),
            valid: with_option!(call_timeout(Duration::from_secs(1))),
        },
        Limit {
            option: "request_timeout",
            minimum: "1 ns",
            invalid: with_option!(request_timeout(Duration::ZERO)),
            valid: with_option!(request_timeout(Duration::from_nanos(1))),
        },
        Limit {
            option: "max_rounds",
            minimum: "1",
            invalid: with_option!(max_rounds(0)),
            valid: with_option!(max_rounds(1)),
        },
    ] {
        for (builder, (_, of)) in invalid().into_iter().zip(one_handler_each()) {
            let error = builder.build().unwrap_err();
            let expected = BuildError::Timeout { of: of.to_owned(), option, minimum };
            assert_eq!(error, expected);
            let text = format!("{of}: `{option}` must be at least {minimum}");
            assert_eq!(error.to_string(), text);
        }
        for builder in valid() {
            builder.build().unwrap();
        }
    }
}

/// An extractor that does not declare its state is not found by `build`, and fails the request.
#[tokio::test]
async fn undeclared_state_is_an_internal_error_in_the_request() {
    struct Undeclared;
    impl FromRequestParts for Undeclared {
        async fn from_request_parts(parts: &RequestParts) -> Result<Self> {
            let State(Pool) = State::from_request_parts(parts).await?;
            Ok(Self)
        }
    }
    async fn handler(_: Undeclared) -> Result<String, Error> {
        Ok("it ran".to_owned())
    }
    let (lines, _guard) = LogLines::collect();
    let server = complete().tool(Tool::new("t", "", handler)).build().unwrap();
    let fleet = Replicas::new([server]).as_principal(alice());
    let none = json!({});
    let outcome = call_tool(&fleet, "t", none.clone(), none).await;
    assert_eq!(outcome["isError"], true, "{outcome}");
    assert!(!outcome.to_string().contains("Pool"), "{outcome}");
    assert!(lines.text().contains(std::any::type_name::<Pool>()), "{}", lines.text());
}

#[tokio::test]
async fn times_of_tasks_are_limited() {
    let server = || complete().task_store(MemoryTaskStore::new(1));
    for (lease, is_valid) in [
        (Duration::from_millis(999), false),
        (Duration::from_secs(1), true),
        (Duration::from_hours(24), true),
        (Duration::MAX, false),
    ] {
        let built = server().task_lease(lease).build();
        assert_eq!(built.err(), (!is_valid).then_some(BuildError::TaskLimits), "{lease:?}");
    }
    let with_ttl = |ttl| {
        let tool = Tool::new("t", "", plain).task(TaskPolicy::immediately().ttl(ttl));
        server().tool(tool).build().err()
    };
    assert_eq!(with_ttl(Duration::from_secs(1)), None);
    let too_short =
        BuildError::Timeout { of: "the tool \"t\"".to_owned(), option: "ttl", minimum: "1 s" };
    assert_eq!(with_ttl(Duration::ZERO), Some(too_short));
}
