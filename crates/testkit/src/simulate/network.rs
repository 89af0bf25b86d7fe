//! The requests of a client, and their faults.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;

use mrtr_schema::jsonrpc::{Params, Request, RequestId};
use mrtr_transport::{GrantedScopes, InProcess, OutgoingRequest, Transport as _};
use serde_json::{Map, Value, json};

use super::Call;
use super::program::Version;
use super::world::RequestMark;

/// The replacement of a handler by a new version.
#[derive(Debug, Clone, Copy)]
pub(super) struct Upgrade {
    /// The first request that the new version may receive.
    pub(super) from: u64,
    /// Number of requests that either version may receive.
    pub(super) mixed: u64,
}

/// A request that had a response.
pub(super) struct Sent {
    pub(super) state: Option<String>,
    pub(super) answers: Map<String, Value>,
    /// The scopes of its token.
    pub(super) scopes: GrantedScopes,
}

/// The response to a request.
pub(super) struct Reply {
    pub(super) version: Version,
    pub(super) outcome: Outcome,
}

pub(super) enum Outcome {
    Result(Value),
    /// The call has ended because the handler was replaced.
    Changed,
    /// The access token lacks scopes.
    MissingScopes(Vec<String>),
}

/// A fault of a request.
#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    /// The response is lost, and the request is sent again.
    Lost,
    /// The request is sent twice at once.
    Twice,
    /// The client disconnects after some polls, and sends the request again.
    Cut(u64),
    /// The request of the previous round arrives once more.
    Late,
}

impl Call<'_> {
    /// Sends a request, with a random fault, until there is a response.
    pub(super) async fn request(
        &mut self,
        state: Option<&str>,
        answers: &Map<String, Value>,
        before: Option<&Sent>,
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
        let scopes = self.tokens.next(&mut self.random);
        match fault {
            Fault::None => {}
            Fault::Lost => drop(self.send(state, answers, scopes).await?),
            Fault::Twice => {
                let one = self.send(state, answers, scopes.clone());
                let both = (one, self.send(state, answers, scopes));
                let (one, other) = futures_util::future::join(both.0, both.1).await;
                return if self.random.below(2) == 0 { one } else { other };
            }
            Fault::Cut(polls) => cut(self.send(state, answers, scopes), polls).await,
            Fault::Late => {
                if let Some(Sent { state, answers, scopes }) = before {
                    drop(self.send(state.as_deref(), answers, scopes.clone()).await?);
                }
            }
        }
        let scopes = self.tokens.next(&mut self.random);
        self.send(state, answers, scopes).await
    }

    /// Sends one request to a random replica of the current or the next phase.
    fn send(
        &mut self,
        state: Option<&str>,
        answers: &Map<String, Value>,
        scopes: GrantedScopes,
    ) -> impl Future<Output = Result<Reply, String>> + use<> {
        self.requests += 1;
        let version = match self.upgrade {
            Some(Upgrade { from, mixed }) if self.requests >= from => {
                let is_old = self.requests < from + mixed && self.random.below(2) == 0;
                if is_old { Version::Old } else { Version::New }
            }
            _ => Version::Old,
        };
        let overloaded = self.random.below(100) < self.overloaded;
        self.fleet.overloaded.store(overloaded, Ordering::Relaxed);
        let mark = RequestMark { number: self.requests, with_state: state.is_some() };
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
            let server = InProcess::new(server.ok_or("no replica")?);
            let server = server.with_extension(mark).with_extension(scopes);
            let params = Params::new(&params).map_err(|error| error.to_string())?;
            let request = Request::new(RequestId::Number(1), "tools/call", Some(params));
            let response = server.send(OutgoingRequest::new(request)).await;
            let outcome = response.map_err(|error| error.to_string())?.outcome;
            let changed = json!({ "reason": "call_changed" });
            let outcome = match outcome {
                Ok(result) => {
                    let result = serde_json::from_str(result.get());
                    Outcome::Result(result.map_err(|error| error.to_string())?)
                }
                Err(error) if error.data.as_ref() == Some(&changed) => Outcome::Changed,
                Err(error) => {
                    let scopes = missing_scopes(error.data.as_ref());
                    Outcome::MissingScopes(scopes.ok_or_else(|| format!("{error:?}"))?)
                }
            };
            Ok(Reply { version, outcome })
        }
    }
}

/// Returns the scopes that an error names.
fn missing_scopes(data: Option<&Value>) -> Option<Vec<String>> {
    let data = data.filter(|data| data["reason"] == "insufficient_scope")?;
    let scopes = data["scopes"].as_array()?.iter();
    Some(scopes.filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Polls a future `polls` times, and drops it.
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
