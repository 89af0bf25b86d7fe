//! A client's requests, and what goes wrong with them on the way.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;

use mrtr_schema::jsonrpc::{Params, Request, RequestId};
use mrtr_transport::{InProcess, OutgoingRequest, Transport as _};
use serde_json::{Map, Value, json};

use super::Flow;
use super::program::Version;
use super::world::Leg;

/// When the handler is replaced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Upgrade {
    /// The first request that may come to the new version.
    pub(super) from: u64,
    /// How many come to any of the two.
    pub(super) mixed: u64,
}

/// What came of a request.
pub(super) struct Reply {
    pub(super) version: Version,
    /// `None` if the flow has ended because the handler has changed.
    pub(super) result: Option<Value>,
}

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    /// The response is lost, and the request sent again.
    Lost,
    /// It is sent twice at once.
    Twice,
    /// The client goes away in the middle, and comes again.
    Cut(u64),
    /// The request of the round before comes once more.
    Late,
}

impl Flow<'_> {
    /// Sends a request, whatever goes wrong, until there is a response.
    pub(super) async fn request(
        &mut self,
        state: Option<&str>,
        answers: &Map<String, Value>,
        before: Option<&(Option<String>, Map<String, Value>)>,
    ) -> Result<Reply, String> {
        let fault = match self.random.below(100) {
            n if n >= self.faults => Fault::None,
            _ => match self.random.below(4) {
                0 => Fault::Lost,
                1 => Fault::Twice,
                2 => Fault::Cut(self.random.below(12)),
                _ => Fault::Late,
            },
        };
        self.faulty += u64::from(!matches!(fault, Fault::None));
        match fault {
            Fault::None => {}
            Fault::Lost => drop(self.leg(state, answers).await?),
            Fault::Twice => {
                let both = (self.leg(state, answers), self.leg(state, answers));
                let (one, other) = futures_util::future::join(both.0, both.1).await;
                return if self.random.below(2) == 0 { one } else { other };
            }
            Fault::Cut(polls) => cut(self.leg(state, answers), polls).await,
            Fault::Late => {
                if let Some((state, answers)) = before {
                    drop(self.leg(state.as_deref(), answers).await?);
                }
            }
        }
        self.leg(state, answers).await
    }

    /// One request to some replica of the phase, or of the next.
    fn leg(
        &mut self,
        state: Option<&str>,
        answers: &Map<String, Value>,
    ) -> impl Future<Output = Result<Reply, String>> + use<> {
        self.requests += 1;
        let version = match self.upgrade {
            Some(Upgrade { from, mixed }) if self.requests >= from => {
                let turns = self.requests < from + mixed && self.random.below(2) == 0;
                if turns { Version::Old } else { Version::New }
            }
            _ => Version::Old,
        };
        let overloaded = self.random.below(100) < self.overloaded;
        self.fleet.overloaded.store(overloaded, Ordering::Relaxed);
        let leg = Leg { number: self.requests, with_state: state.is_some() };
        let phase = self.phase + self.random.below(2);
        let phase = self.fleet.phases.get(usize::try_from(phase).unwrap_or_default());
        let phase = phase.or(self.fleet.phases.last());
        let replica = usize::try_from(self.random.below(2)).unwrap_or_default();
        let replicas = phase.map(|[old, new]| if version == Version::Old { old } else { new });
        let server = replicas.and_then(|replicas| replicas.get(replica)).cloned();
        let mut params = json!({
            "name": "program",
            "arguments": { "seed": self.old.seed.to_string() },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
            },
        });
        if let (Some(params), Some(state)) = (params.as_object_mut(), state) {
            params.insert("requestState".to_owned(), state.into());
            params.insert("inputResponses".to_owned(), answers.clone().into());
        }
        async move {
            let server = InProcess::new(server.ok_or("no replica")?).with(leg);
            let params = Params::new(&params).map_err(|error| error.to_string())?;
            let request = Request::new(RequestId::Number(1), "tools/call", Some(params));
            let response = server.send(OutgoingRequest::new(request)).await;
            let outcome = response.map_err(|error| error.to_string())?.outcome;
            let changed = json!({ "reason": "call_changed" });
            let result = match outcome {
                Ok(result) => {
                    let result = serde_json::from_str(result.get());
                    Some(result.map_err(|error| error.to_string())?)
                }
                Err(error) if error.data.as_ref() == Some(&changed) => None,
                Err(error) => return Err(format!("{error:?}")),
            };
            Ok(Reply { version, result })
        }
    }
}

/// Polls a future some times, and drops it.
async fn cut<T>(future: impl Future<Output = T>, polls: u64) {
    let mut future = pin!(future);
    for _ in 0..polls {
        let mut ready = false;
        std::future::poll_fn(|cx| {
            ready = future.as_mut().poll(cx).is_ready();
            Poll::Ready(())
        })
        .await;
        if ready {
            return;
        }
        tokio::task::yield_now().await;
    }
}
