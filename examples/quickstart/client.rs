//! The client: one call. What it adds to the paved path is that every leg is shown.

use std::error::Error;

use mrtr::client::{OutgoingRequest, Transport, TransportError};
use mrtr::http::HttpClient;
use mrtr::schema::input::InputRequiredResult;
use mrtr::schema::jsonrpc::Response;
use mrtr::{CallError, Client};
use serde_json::json;

use crate::fleet::Fleet;
use crate::person::Person;
use crate::show::Show;

pub async fn book(fleet: &Fleet, person: Person, show: &Show) -> Result<String, Box<dyn Error>> {
    let arguments = json!({ "people": 2, "day": "Friday" });
    show.call("book", &arguments.to_string());
    // The loop is driven in a task of its own; what it does is shown here.
    let (legs, mut seen) = tokio::sync::mpsc::channel(1);
    let connection = Shown { http: HttpClient::builder(fleet.url()).build()?, legs };
    let asked = show.clone();
    let client = Client::builder(connection)
        .on_form(move |question, form| {
            let (person, show) = (person.clone(), asked.clone());
            async move { Ok(person.fill_in(&question.key, &form, &show).await?) }
        })
        .build();
    let call = tokio::spawn(async move {
        let result = client.call_tool("book", arguments).await?;
        Ok::<_, CallError>(result.text())
    });
    let (mut leg, mut steps) = (0, 0);
    while let Some(Leg { state, asks, go_on }) = seen.recv().await {
        leg += 1;
        show.leg(leg, fleet.last_served(), &fleet.new_steps(&mut steps), &asks, state.as_deref());
        if !asks.is_empty() {
            fleet.record_round(asks.len());
        }
        if leg == 2 {
            let (name, pid) = fleet.kill_last().await.map_err(|e| e.to_string())?;
            show.killed(name, pid);
        }
        let _ = go_on.send(());
    }
    Ok(call.await??)
}

/// A leg that was served. The loop goes on when it has been shown.
struct Leg {
    state: Option<String>,
    asks: Vec<(String, String)>,
    go_on: tokio::sync::oneshot::Sender<()>,
}

/// A connection that shows what comes back.
struct Shown {
    http: HttpClient,
    legs: tokio::sync::mpsc::Sender<Leg>,
}

impl Transport for Shown {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let response = self.http.send(outgoing).await?;
        let result = response.outcome.as_ref().ok();
        let asks = result
            .and_then(|result| serde_json::from_str::<InputRequiredResult>(result.get()).ok());
        let (state, questions) =
            asks.map_or((None, None), |asks| (asks.request_state, asks.input_requests));
        let asks = questions.unwrap_or_default().0.into_iter().map(|(key, request)| {
            let message = match request {
                mrtr::schema::input::InputRequest::Elicit(params) => params.message().to_owned(),
                other => other.method().to_owned(),
            };
            (key, message)
        });
        let (go_on, shown) = tokio::sync::oneshot::channel();
        if self.legs.send(Leg { state, asks: asks.collect(), go_on }).await.is_ok() {
            let _ = shown.await;
        }
        Ok(response)
    }
}
