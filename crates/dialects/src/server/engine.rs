//! The request handler, called as a client of the current revision would.

use std::sync::Arc;

use mrtr_codec::Principal;
use mrtr_schema::capabilities::{ClientCapabilities, Implementation};
use mrtr_schema::jsonrpc::{ErrorObject, Params, Request, RequestId};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::tasks::EXTENSION;
use mrtr_schema::{Object, PROTOCOL_VERSION, RawJson};
use mrtr_transport::{IncomingRequest, NotificationSender, RequestHandler, WithoutParamHeaders};
use serde_json::Value;

use super::seal::{Part, StateSeal, pack, unpack};
use crate::Dialect;
use crate::wire::call::{Call, Reply};

/// What arrived with a message: who sends it, and what the client can answer.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) headers: ::http::HeaderMap,
    pub(crate) extensions: ::http::Extensions,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) client: Option<Implementation>,
}

impl Caller {
    pub(crate) fn principal(&self) -> Option<&Principal> {
        self.extensions.get()
    }
}

pub(crate) struct Engine<H> {
    pub(crate) dialect: Dialect,
    pub(crate) handler: Arc<H>,
    pub(crate) seal: StateSeal,
    /// What clients can answer that have not negotiated it.
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) max_event_id: usize,
}

impl<H: RequestHandler> Engine<H> {
    /// Runs one round of a call. Its state is the engine's own.
    pub(crate) async fn round(
        &self,
        caller: &Caller,
        mut call: Call,
        with_tasks: bool,
        notifications: NotificationSender,
    ) -> Result<Reply, ErrorObject> {
        let sent = call.take_meta()?;
        let mut meta = meta_of(caller, with_tasks);
        meta.progress_token = sent.progress_token;
        meta.other = sent.other;
        let result = self.handle(caller, call.into_request()?, meta, notifications).await?;
        Reply::from_result(result).map_err(|error| malformed(&error))
    }

    /// Runs one round of a call whose state, if there is one, is sealed for the dialect.
    pub(crate) async fn sealed_round(
        &self,
        caller: &Caller,
        mut call: Call,
        with_tasks: bool,
        notifications: NotificationSender,
    ) -> Result<Reply, ErrorObject> {
        if let Some(token) = call.request_state.take() {
            let packed = self.seal.open(Part::State, caller.principal(), &token)?;
            call.request_state = Some(unpack(&packed)?);
        }
        let mut reply = self.round(caller, call, with_tasks, notifications).await?;
        if let Reply::InputRequired { state: Some(state), .. } = &mut reply {
            *state = self.seal.seal(Part::State, caller.principal(), &pack(state))?;
        }
        Ok(reply)
    }

    /// Sends a request that has no state, and returns its result.
    pub(crate) async fn request(
        &self,
        caller: &Caller,
        method: &str,
        params: &Value,
    ) -> Result<RawJson, ErrorObject> {
        let params = Params::new(params).map_err(|error| malformed(&error))?;
        let request = Request::new(RequestId::Number(0), method, Some(params));
        let meta = meta_of(caller, true);
        self.handle(caller, request, meta, NotificationSender::closed()).await
    }

    async fn handle(
        &self,
        caller: &Caller,
        request: Request,
        meta: RequestMeta,
        notifications: NotificationSender,
    ) -> Result<RawJson, ErrorObject> {
        let mut incoming = IncomingRequest::new(request, Some(Arc::new(meta)), notifications);
        incoming.headers.clone_from(&caller.headers);
        incoming.extensions.clone_from(&caller.extensions);
        // No dialect mirrors arguments in headers.
        incoming.extensions.insert(WithoutParamHeaders);
        Arc::clone(&self.handler).handle(incoming).await.outcome
    }
}

/// Returns the `_meta` that a client of the current revision would send.
fn meta_of(caller: &Caller, with_tasks: bool) -> RequestMeta {
    let mut capabilities = caller.capabilities.clone();
    if with_tasks {
        capabilities = capabilities.with_extension(EXTENSION, Object::new());
    }
    let mut meta = RequestMeta::new(PROTOCOL_VERSION, capabilities);
    meta.client_info.clone_from(&caller.client);
    meta
}

/// Logs that a message of the handler cannot be translated.
pub(crate) fn malformed(error: &dyn std::fmt::Display) -> ErrorObject {
    tracing::error!(target: "mrtr::dialects", %error, "a message cannot be translated");
    ErrorObject::internal("Internal error")
}
