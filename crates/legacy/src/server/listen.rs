//! The changes of the server, for one session: a subscription of the current revision.

use std::collections::BTreeSet;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use mrtr_schema::json::{ObjectWriter, read_pairs};
use mrtr_schema::jsonrpc::{Notification, Params, Request, RequestId, Response};
use mrtr_schema::subscription::{ListenParams, SubscriptionFilter, name};
use mrtr_schema::{RawJson, method};
use mrtr_transport::{NotificationReceiver, NotificationSender, RequestHandler};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::context::{self, Context};
use super::gateway::Gateway;
use super::session::Session;

/// The pause before a subscription that was refused is requested again.
const RETRY: Duration = Duration::from_secs(10);

/// Sends the changes of the server until it ends the subscription, or the receiver is dropped.
pub(crate) async fn listen<H: RequestHandler>(
    gateway: &Gateway<H>,
    session: &Session,
    context: &Context,
    changes: &mpsc::Sender<Notification>,
) {
    let mut uris = session.subscriptions();
    let start = |uris: &mut watch::Receiver<_>| {
        Subscription::start(gateway, session, context, &uris.borrow_and_update())
    };
    let mut current = None;
    // It replaces the current one when it is acknowledged, so that no change is missed.
    let mut coming = Some(start(&mut uris));
    let mut retry_at = None;
    loop {
        tokio::select! {
            biased;
            () = changes.closed() => return,
            first = next_of(&mut coming) => {
                let is_refused = coming.as_ref().is_some_and(|coming| coming.is_refused);
                let former = match first {
                    Some(_) => std::mem::replace(&mut current, coming.take()),
                    None if is_refused => {
                        (coming, retry_at) = (None, Some(Instant::now() + RETRY));
                        None
                    }
                    None => return,
                };
                let Some(mut former) = former else { continue };
                while let Some(notification) = former.notifications.close_and_recv() {
                    if !forward(changes, notification).await {
                        return;
                    }
                }
            }
            next = next_of(&mut current) => match next {
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
                (coming, retry_at) = (Some(start(&mut uris)), None);
            }
            () = sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {
                (coming, retry_at) = (Some(start(&mut uris)), None);
            }
        }
    }
}

/// Waits for the next notification; `None` if the subscription has ended.
async fn next_of(subscription: &mut Option<Subscription>) -> Option<Notification> {
    match subscription {
        Some(subscription) => subscription.next().await,
        None => pending().await,
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
    /// True if the response is an error.
    is_refused: bool,
}

impl Subscription {
    fn start<H: RequestHandler>(
        gateway: &Gateway<H>,
        session: &Session,
        context: &Context,
        uris: &BTreeSet<String>,
    ) -> Self {
        let filter = SubscriptionFilter::new().with_tools().with_prompts().with_resources();
        let filter = uris.iter().cloned().fold(filter, SubscriptionFilter::with_resource);
        let params = Params::new(&ListenParams::new(filter)).ok();
        let request = Request::new(RequestId::String(gateway.new_id()), method::LISTEN, params);
        let meta = Arc::new(context::meta(&session.claims));
        let mut incoming = context.incoming(&session.claims, request, meta);
        let (sender, notifications) = NotificationSender::channel();
        incoming.notifications = sender;
        let response = Box::pin(Arc::clone(&gateway.handler).handle(incoming));
        Self { response: Some(response), notifications, is_refused: false }
    }

    fn poll_response(&mut self, cx: &mut std::task::Context<'_>) -> Poll<()> {
        if let Some(response) = &mut self.response {
            let outcome = ready!(response.as_mut().poll(cx)).outcome;
            self.response = None;
            if let Err(error) = outcome {
                tracing::warn!(target: "mrtr::legacy", %error, "a subscription was refused");
                self.is_refused = true;
            }
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
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use mrtr_codec::KeyRing;
    use mrtr_schema::capabilities::{ClientCapabilities, Implementation};
    use mrtr_schema::jsonrpc::ErrorObject;
    use mrtr_transport::IncomingRequest;
    use serde_json::json;

    use super::*;
    use crate::server::claims::SessionClaims;
    use crate::server::session::{Change, SessionKey};
    use crate::{LegacyOptions, LegacyVersion};

    /// Sends one notification and rejects the request, both at once.
    struct Rejecting;

    impl RequestHandler for Rejecting {
        async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> Response<RawJson> {
            assert!(incoming.notifications.try_send(Notification::from_raw("x", None)));
            Response::error(Some(incoming.request.id), ErrorObject::internal("no"))
        }
    }

    /// Refuses the second subscription.
    #[derive(Default)]
    struct Moody {
        requests: AtomicUsize,
        open: Mutex<Vec<NotificationSender>>,
    }

    impl RequestHandler for Moody {
        async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> Response<RawJson> {
            if self.requests.fetch_add(1, Ordering::Relaxed) == 1 {
                return Response::error(Some(incoming.request.id), ErrorObject::internal("no"));
            }
            let acknowledged = Notification::from_raw(name::ACKNOWLEDGED, None);
            assert!(incoming.notifications.try_send(acknowledged));
            self.open.lock().unwrap().push(incoming.notifications);
            pending().await
        }
    }

    fn gateway<H: RequestHandler>(handler: H) -> (Gateway<H>, Session) {
        let keys = Arc::new(KeyRing::ephemeral().unwrap());
        let claims = SessionClaims {
            version: LegacyVersion::V2025_11_25,
            capabilities: ClientCapabilities::default(),
            client: Implementation::new("test", "1"),
        };
        let gateway = Gateway::new(handler, keys, LegacyOptions::default()).unwrap();
        (gateway, Session::new(SessionKey::of(""), claims, None))
    }

    #[tokio::test]
    async fn subscription_that_ends_at_once_is_not_polled_again() {
        let (gateway, session) = gateway(Rejecting);
        let context = Context::default();
        let mut subscription = Subscription::start(&gateway, &session, &context, &BTreeSet::new());
        assert_eq!(subscription.next().await.unwrap().method, "x");
        assert!(subscription.next().await.is_none());
        assert!(subscription.next().await.is_none());
    }

    /// Such as by a rate limit. Changes of what was subscribed to before still arrive.
    #[tokio::test(start_paused = true)]
    async fn refused_subscription_is_requested_again() {
        let (gateway, session) = gateway(Moody::default());
        let context = Context::default();
        let (sender, mut changes) = mpsc::channel::<Notification>(8);
        let send = |n: usize, method: &'static str| {
            let open = gateway.handler.open.lock().unwrap();
            assert!(open[n].try_send(Notification::from_raw(method, None)));
        };
        let client = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(session.change(Change::Subscribe("a:1".to_owned())));
            tokio::time::sleep(Duration::from_secs(1)).await;
            send(0, "x");
            assert_eq!(changes.recv().await.unwrap().method, "x");
            tokio::time::sleep(RETRY).await;
            send(1, "y");
            assert_eq!(changes.recv().await.unwrap().method, "y");
        };
        tokio::select! {
            () = listen(&gateway, &session, &context, &sender) => panic!("it has ended"),
            () = client => {}
        }
        assert_eq!(gateway.handler.requests.load(Ordering::Relaxed), 3);
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
