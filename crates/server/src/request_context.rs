//! Who sent a request.

use std::sync::{Arc, Mutex, PoisonError};

use http::{Extensions, HeaderMap};
use mrtr_codec::Principal;
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::jsonrpc::Notification;
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::notification::{Progress, name};
use mrtr_transport::NotificationSender;
use serde::Serialize;

use crate::runtime::Runtime;

/// Who sent a request, what they can be asked, and how they are told of what comes before the response.
#[derive(Debug)]
pub(crate) struct RequestContext {
    pub(crate) meta: Arc<RequestMeta>,
    pub(crate) principal: Option<Principal>,
    pub(crate) headers: HeaderMap,
    pub(crate) notify: Notifier,
    /// From layers in front of the server.
    pub(crate) extensions: Extensions,
    pub(crate) replica: Arc<Runtime>,
}

impl RequestContext {
    pub(crate) fn capabilities(&self) -> &ClientCapabilities {
        capabilities(&self.meta)
    }

    /// Tells how far the call has come, if the client wants to know.
    pub(crate) fn progress(
        &self,
        progress: f64,
        total: Option<f64>,
        message: Option<&str>,
        muted: bool,
    ) {
        let Some(token) = &self.meta.progress_token else { return };
        let mut params = Progress::new(token.clone(), progress);
        params.total = total.filter(|total| total.is_finite());
        params.message = message.map(str::to_owned);
        self.notify.progress(&params, muted);
    }

    /// What a layer in front left with the request, or what was given to all requests.
    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.extensions.get().or_else(|| self.replica.provided.get())
    }
}

/// What the client can do. Requests that do not say it were refused.
pub(crate) fn capabilities(meta: &RequestMeta) -> &ClientCapabilities {
    static NONE: ClientCapabilities = ClientCapabilities::new();
    meta.client_capabilities.as_ref().unwrap_or(&NONE)
}

/// What is sent before the response.
#[derive(Debug)]
pub(crate) struct Notifier {
    pub(crate) outbox: NotificationSender,
    /// The last progress that was told.
    pub(crate) last: Mutex<Option<f64>>,
}

impl Notifier {
    /// Sends progress, if it has grown. `muted` if it was told before.
    fn progress(&self, params: &Progress, muted: bool) {
        // Held until it is queued, so that of two tasks the one that is further comes last.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let grows = last.is_none_or(|last| params.progress > last);
        if grows && params.progress.is_finite() {
            *last = Some(params.progress);
            if !muted {
                self.send(name::PROGRESS, params);
            }
        }
    }

    pub(crate) fn send(&self, method: &str, params: &impl Serialize) {
        let sent = Notification::new(method, params).is_ok_and(|n| self.outbox.try_send(n));
        if !sent {
            tracing::debug!(target: "mrtr::server", method, "a notification was dropped");
        }
    }
}
