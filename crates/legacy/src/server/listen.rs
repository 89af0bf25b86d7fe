//! The changes of the server, for one session: a subscription of the current revision.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use mrtr_schema::json::{ObjectWriter, read_pairs};
use mrtr_schema::jsonrpc::{Notification, Params, Request, RequestId, Response};
use mrtr_schema::subscription::{ListenParams, SubscriptionFilter, name};
use mrtr_schema::{RawJson, method};
use mrtr_transport::{NotificationReceiver, NotificationSender, RequestHandler};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::context::{self, Context};
use super::gateway::Gateway;
use super::session::Session;

/// Sends the changes of the server until it ends the subscription, or the receiver is dropped.
pub(crate) async fn listen<H: RequestHandler>(
    gateway: &Gateway<H>,
    session: &Session,
    context: &Context,
    changes: &mpsc::Sender<Notification>,
) {
    let mut uris = session.subscriptions();
    let start = |uris: Vec<String>| Subscription::start(gateway, session, context, uris);
    let mut current = start(uris.borrow_and_update().iter().cloned().collect());
    loop {
        tokio::select! {
            biased;
            () = changes.closed() => return,
            next = current.next() => match next {
                Some(notification) => {
                    if !forward(changes, notification).await {
                        return;
                    }
                }
                None => return,
            },
            is_open = uris.changed() => {
                if is_open.is_err() {
                    return;
                }
                // The new subscription begins before the old one ends, so that no change is missed.
                let mut next = start(uris.borrow_and_update().iter().cloned().collect());
                next.begin().await;
                let mut former = std::mem::replace(&mut current, next);
                while let Some(notification) = former.notifications.close_and_recv() {
                    if !forward(changes, notification).await {
                        return;
                    }
                }
            }
        }
    }
}

/// Sends a notification as a legacy client expects it. Returns false if the receiver is dropped.
async fn forward(changes: &mpsc::Sender<Notification>, notification: Notification) -> bool {
    notification.method == name::ACKNOWLEDGED
        || changes.send(without_meta(notification)).await.is_ok()
}

/// One `subscriptions/listen` request.
struct Subscription {
    /// `None` once it is there.
    response: Option<Pin<Box<dyn Future<Output = Response<RawJson>> + Send>>>,
    notifications: NotificationReceiver,
}

impl Subscription {
    fn start<H: RequestHandler>(
        gateway: &Gateway<H>,
        session: &Session,
        context: &Context,
        uris: Vec<String>,
    ) -> Self {
        let filter = SubscriptionFilter::new().with_tools().with_prompts().with_resources();
        let filter = uris.into_iter().fold(filter, SubscriptionFilter::with_resource);
        let params = Params::new(&ListenParams::new(filter)).ok();
        let request = Request::new(RequestId::String(gateway.new_id()), method::LISTEN, params);
        let meta = Arc::new(context::meta(&session.claims));
        let mut incoming = context.incoming(&session.claims, request, meta);
        let (sender, notifications) = NotificationSender::channel();
        incoming.notifications = sender;
        let response = Box::pin(Arc::clone(&gateway.handler).handle(incoming));
        Self { response: Some(response), notifications }
    }

    /// Lets the handler begin.
    async fn begin(&mut self) {
        poll_fn(|cx| {
            let _ = self.poll_response(cx);
            Poll::Ready(())
        })
        .await;
    }

    fn poll_response(&mut self, cx: &mut std::task::Context<'_>) -> Poll<()> {
        if let Some(response) = &mut self.response {
            let _ = ready!(response.as_mut().poll(cx));
            self.response = None;
        }
        Poll::Ready(())
    }

    /// Waits for the next notification; `None` if the subscription has ended.
    async fn next(&mut self) -> Option<Notification> {
        poll_fn(|cx| {
            if let Poll::Ready(next) = self.notifications.poll_recv(cx) {
                return Poll::Ready(Some(next));
            }
            if self.poll_response(cx).is_ready() {
                return Poll::Ready(self.notifications.close_and_recv());
            }
            self.notifications.poll_recv(cx).map(Some)
        })
        .await
    }
}

/// Removes `_meta`, which names a subscription that the client does not know.
fn without_meta(notification: Notification) -> Notification {
    let Notification { method, params, .. } = notification;
    let params = params.and_then(|params| {
        let mut deserializer = serde_json::Deserializer::from_str(params.get());
        let members: Vec<(String, Box<RawValue>)> =
            read_pairs(&mut deserializer, "an object").ok()?;
        let mut kept = members.into_iter().filter(|(name, _)| name != "_meta").peekable();
        kept.peek()?;
        let object = kept.fold(ObjectWriter::with_capacity(64), |object, (name, value)| {
            object.raw(&name, &RawJson::from(value))
        });
        RawValue::from_string(String::from(object.end())).ok()
    });
    Notification::from_raw(method, params)
}

#[cfg(test)]
mod tests {
    use mrtr_codec::KeyRing;
    use mrtr_schema::capabilities::{ClientCapabilities, Implementation};
    use mrtr_schema::jsonrpc::ErrorObject;
    use mrtr_transport::IncomingRequest;
    use serde_json::json;

    use super::*;
    use crate::server::claims::SessionClaims;
    use crate::server::session::SessionKey;
    use crate::{LegacyOptions, LegacyVersion};

    /// Sends one notification and rejects the request, both at once.
    struct Rejecting;

    impl RequestHandler for Rejecting {
        async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> Response<RawJson> {
            assert!(incoming.notifications.try_send(Notification::from_raw("x", None)));
            Response::error(Some(incoming.request.id), ErrorObject::internal("no"))
        }
    }

    #[tokio::test]
    async fn subscription_that_ends_at_once_is_not_polled_again() {
        let keys = Arc::new(KeyRing::ephemeral().unwrap());
        let gateway = Gateway::new(Rejecting, keys, LegacyOptions::default()).unwrap();
        let claims = SessionClaims {
            version: LegacyVersion::V2025_11_25,
            capabilities: ClientCapabilities::default(),
            client: Implementation::new("test", "1"),
        };
        let session = Session::new(SessionKey::of(""), claims, None);
        for begins in [false, true] {
            let context = Context::default();
            let mut subscription = Subscription::start(&gateway, &session, &context, Vec::new());
            if begins {
                subscription.begin().await;
            }
            assert_eq!(subscription.next().await.unwrap().method, "x");
            assert!(subscription.next().await.is_none());
            assert!(subscription.next().await.is_none());
        }
    }

    #[test]
    fn meta_is_removed_and_other_members_stay() {
        let text = |params| without_meta(Notification::new("x", &params).unwrap()).to_json();
        let with_uri = text(json!({ "uri": "file:///a", "_meta": { "a": 1 } }));
        assert_eq!(
            with_uri.as_str(),
            r#"{"jsonrpc":"2.0","method":"x","params":{"uri":"file:///a"}}"#
        );
        assert_eq!(text(json!({ "_meta": {} })).as_str(), r#"{"jsonrpc":"2.0","method":"x"}"#);
    }
}
