use mrtr_schema::capabilities::{ClientCapabilities, ElicitationCapability, RootsCapability};

use super::*;

fn start() -> (Machine, Action) {
    let params = vec![("name".to_owned(), RawValue::from_string("\"book\"".into()).unwrap())];
    let capabilities = ClientCapabilities::new()
        .with_elicitation(ElicitationCapability::form())
        .with_roots(RootsCapability::default());
    let meta = RequestMeta::new("2026-07-28", capabilities);
    Machine::start(RequestIds::default(), "tools/call", params, meta, RoundLimits::default())
        .unwrap()
}

fn result(text: &str) -> Event {
    Event::Response(Ok(RawValue::from_string(text.to_owned()).unwrap()))
}

fn sent(action: Action) -> (RequestId, Value) {
    let Action::Send(request) = action else { panic!("{action:?}") };
    (request.id, serde_json::from_str(request.params.unwrap().as_str()).unwrap())
}

fn responses(keys: &[&str]) -> Event {
    let mut all = InputResponses::default();
    for key in keys {
        all.push(*key, &serde_json::json!({ "action": "decline" })).unwrap();
    }
    Event::Input(all)
}

const INPUT_REQUIRED: &str = r#"{"resultType":"input_required","inputRequests":{"q":{"method":"roots/list"}},"requestState":" é\u0000\"x "}"#;

#[test]
fn next_request_has_a_new_id_and_the_unchanged_state() {
    let (mut machine, first) = start();
    let (first_id, first) = sent(first);
    assert_eq!((first.get("requestState"), first.get("inputResponses")), (None, None));
    assert!(matches!(machine.next(result(INPUT_REQUIRED)).unwrap(), Action::RequestInput(_)));
    let (second_id, second) = sent(machine.next(responses(&["q"])).unwrap());
    assert_ne!(first_id, second_id);
    assert_eq!(second["requestState"], " é\u{0}\"x ");
    assert_eq!(second["inputResponses"]["q"]["action"], "decline");
    assert_eq!(second["name"], "book");

    // The next result has no state, so the old one must not be sent again.
    let none = r#"{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}"#;
    machine.next(result(none)).unwrap();
    let (_, third) = sent(machine.next(responses(&["r"])).unwrap());
    assert_eq!(third.get("requestState"), None);
    assert_eq!(
        third["inputResponses"].as_object().unwrap().len(),
        1,
        "old responses must not be sent again"
    );
    assert!(
        matches!(machine.next(result("{}")).unwrap(), Action::Complete(_)),
        "a missing resultType means complete"
    );
}

#[test]
fn input_responses_are_sent_once() {
    let (mut machine, _) = start();
    machine.next(result(INPUT_REQUIRED)).unwrap();
    sent(machine.next(responses(&["q"])).unwrap());
    let only = r#"{"resultType":"input_required","requestState":"t"}"#;
    assert!(matches!(machine.next(result(only)).unwrap(), Action::Wait(_)));
    let (_, params) = sent(machine.next(Event::Waited).unwrap());
    assert_eq!((&params["requestState"], params.get("inputResponses")), (&"t".into(), None));
}

#[test]
fn postponed_call_waits_longer_each_time_up_to_the_limit() {
    let (mut machine, _) = start();
    let only = r#"{"resultType":"input_required","requestState":"s"}"#;
    let mut waits = Vec::new();
    let error = loop {
        match machine.next(result(only)) {
            Ok(Action::Wait(time)) => waits.push(time.as_millis()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
        let (_, params) = sent(machine.next(Event::Waited).unwrap());
        assert_eq!(params["requestState"], "s");
        assert_eq!(params.get("inputResponses"), None);
    };
    assert_eq!(waits, [50, 100, 200, 250, 250, 250, 250, 250, 250, 250]);
    assert!(error.is_too_many_rounds(), "{error}");
}

#[test]
fn too_many_input_rounds_end_the_call_with_the_last_input_request() {
    let (mut machine, _) = start();
    let ask = r#"{"resultType":"input_required","inputRequests":{"more":{"method":"elicitation/create","params":{"message":"And now?","requestedSchema":{"type":"object","properties":{}}}}}}"#;
    for _ in 0..10 {
        machine.next(result(ask)).unwrap();
        machine.next(responses(&["more"])).unwrap();
    }
    let error = machine.next(result(ask)).unwrap_err();
    assert!(error.is_too_many_rounds());
    assert!(error.to_string().contains("\"more\" \"And now?\""), "{error}");
}

#[test]
fn protocol_violations_are_attributed_to_the_server() {
    for (text, part) in [
        (r#"{"resultType":"other"}"#, "unknown resultType \"other\""),
        (r#"{"resultType":"input_required"}"#, "neither inputRequests nor requestState"),
        (
            r#"{"resultType":"input_required","inputRequests":{}}"#,
            "neither inputRequests nor requestState",
        ),
        (
            r#"{"resultType":"input_required","inputRequests":{"q":{"method":"tools/call"}}}"#,
            "unknown input request",
        ),
        (r#"{"resultType":5}"#, "malformed result"),
        ("[]", "malformed result"),
    ] {
        let (mut machine, _) = start();
        let error = machine.next(result(text)).unwrap_err();
        assert!(error.is_protocol() && error.to_string().contains(part), "{error}");
    }
}

#[test]
fn only_tools_prompts_and_resources_may_request_input() {
    let meta = RequestMeta::default();
    let (mut machine, _) = Machine::start(
        RequestIds::default(),
        "tools/list",
        Vec::new(),
        meta,
        RoundLimits::default(),
    )
    .unwrap();
    assert!(machine.next(result(INPUT_REQUIRED)).unwrap_err().is_protocol());
}

#[test]
fn request_is_repeated_once_if_the_server_supports_its_version() {
    let (mut machine, first) = start();
    let refusal =
        || Event::Response(Err(ErrorObject::unsupported_version("2026-07-28", &["2026-07-28"])));
    let (again, _) = sent(machine.next(refusal()).unwrap());
    assert_ne!(again, sent(first).0);
    assert_eq!(
        machine.next(refusal()).unwrap_err().as_server_error().unwrap().code,
        code::UNSUPPORTED_PROTOCOL_VERSION
    );
    let (mut machine, _) = start();
    let other =
        Event::Response(Err(ErrorObject::unsupported_version("2026-07-28", &["2025-11-25"])));
    assert!(machine.next(other).is_err());
}

#[test]
fn unexpected_events_end_the_call() {
    for event in [responses(&["q"]), Event::Waited] {
        let (mut machine, _) = start();
        assert!(machine.next(event).is_err());
        assert!(machine.next(result("{}")).is_err(), "the call is over");
    }
    for keys in [&["other"][..], &[], &["q", "more"]] {
        let (mut machine, _) = start();
        machine.next(result(INPUT_REQUIRED)).unwrap();
        assert!(machine.next(responses(keys)).is_err(), "{keys:?}");
    }
}
