//! A call in the client's state machine.

use mrtr_client::{Action, Event, Machine, RequestIds, RoundLimits};
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::input::InputResponses;
use mrtr_schema::meta::RequestMeta;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::{META, Operation};

fn text(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// Receives a question, answers it, and receives the result.
pub fn two_rounds() -> Operation {
    let state = "s".repeat(234);
    let asked = text(&format!(
        r#"{{"resultType":"input_required","inputRequests":{{"quantity":{{"method":"elicitation/create","params":{{"mode":"form","message":"How many of tea?","requestedSchema":{{"type":"object","properties":{{"quantity":{{"type":"integer","minimum":1,"maximum":10}}}},"required":["quantity"]}}}}}}}},"requestState":"{state}"}}"#
    ));
    let done = text(r#"{"resultType":"complete","content":[{"type":"text","text":"3 x tea"}]}"#);
    let meta: RequestMeta = serde_json::from_str(META).unwrap();
    let params = vec![
        ("name".to_owned(), text(r#""order""#)),
        ("arguments".to_owned(), text(r#"{"item":"tea"}"#)),
    ];
    let answer = ElicitResult::accept(json!({ "quantity": 3 })).unwrap();
    Box::new(move || {
        let (params, meta, limits) = (params.clone(), meta.clone(), RoundLimits::default());
        let (mut machine, first) =
            Machine::start(RequestIds::default(), "tools/call", params, meta, limits).unwrap();
        assert!(matches!(first, Action::Send(_)));
        let Ok(Action::RequestInput(questions)) = machine.next(Event::Response(Ok(asked.clone())))
        else {
            panic!("a question")
        };
        let answers = questions.0.into_iter().map(|(key, _)| (key, to_raw_value(&answer).unwrap()));
        let answers = InputResponses(answers.collect());
        assert!(matches!(machine.next(Event::Input(answers)), Ok(Action::Send(_))));
        assert!(matches!(machine.next(Event::Response(Ok(done.clone()))), Ok(Action::Complete(_))));
    })
}
