//! The changes of the server, for one session: a subscription of the current revision.

use std::collections::BTreeSet;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use mrtr_schema::json::{ObjectWriter, read_pairs};
use mrtr_schema::jsonrpc::{ErrorObject, Notification, Params, Request, RequestId, Response, code};
use mrtr_schema::subscription::{ListenParams, SubscriptionFilter, name};
use mrtr_schema::{RawJson, method};
use mrtr_transport::{NotificationReceiver, NotificationSender, RequestHandler, retry_after};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::context::{self, Context};
use super::gateway::Gateway;
use super::session::Session;

/// The pause before a subscription that was refused is requested again, unless the error states
/// one. It doubles with each refusal.
const MIN_PAUSE: Duration = Duration::from_secs(10);

/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_mins(5);

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
    let mut retry = Retry::default();
    loop {
        tokio::select! {
            biased;
            () = changes.closed() => return,
            first = next_of(&mut coming) => {
                if first.is_none() {
                    let refusal = coming.take().and_then(|coming| coming.refusal);
                    match refusal {
                        Some(error) if is_permanent(&error) && current.is_some() => {
                            tracing::warn!(target: "mrtr::legacy", %error, "subscription refused");
                        }
                        Some(error) if !is_permanent(&error) => retry.schedule(&error),
                        _ => return,
                    }
                    continue;
                }
                retry = Retry::default();
                let former = std::mem::replace(&mut current, coming.take());
                let Some(mut former) = former else { continue };
                // What it has not passed on yet came before the other one was accepted.
                while let Some(notification) = former.next_at_once().await {
                    if !forward(changes, notification).await {
                        return;
                    }
                }
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
                (coming, retry) = (Some(start(&mut uris)), Retry::default());
            }
            () = sleep_until(retry.at.unwrap_or_else(Instant::now)), if retry.at.is_some() => {
                (coming, retry.at) = (Some(start(&mut uris)), None);
            }
        }
    }
}

/// When a subscription that was refused is requested again.
#[derive(Default)]
struct Retry {
    at: Option<Instant>,
    /// The last pause; `None` before the first refusal since a subscription was acknowledged.
    pause: Option<Duration>,
}

impl Retry {
    fn schedule(&mut self, error: &ErrorObject) {
        if self.pause.is_none() {
            tracing::warn!(
                target: "mrtr::legacy",
                %error,
                "subscription refused: it is requested again until it is accepted"
            );
        }
        let next = self.pause.map_or(MIN_PAUSE, |pause| MAX_PAUSE.min(pause * 2));
        let pause = retry_after(error).map_or(next, |stated| stated.clamp(MIN_PAUSE, MAX_PAUSE));
        (self.at, self.pause) = (Some(Instant::now() + pause), Some(pause));
    }
}

/// Returns true if the same request will be refused again.
fn is_permanent(error: &ErrorObject) -> bool {
    matches!(error.code, code::INVALID_REQUEST | code::INVALID_PARAMS | code::METHOD_NOT_FOUND)
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
    /// The response, if it is an error.
    refusal: Option<ErrorObject>,
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
        Self { response: Some(response), notifications, refusal: None }
    }

    fn poll_response(&mut self, cx: &mut std::task::Context<'_>) -> Poll<()> {
        if let Some(response) = &mut self.response {
            let outcome = ready!(response.as_mut().poll(cx)).outcome;
            self.response = None;
            self.refusal = outcome.err();
        }
        Poll::Ready(())
    }

    /// Waits for the next notification; `None` if the subscription has ended.
    async fn next(&mut self) -> Option<Notification> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Returns the next notification; `None` if there is none now.
    async fn next_at_once(&mut self) -> Option<Notification> {
        poll_fn(|cx| match self.poll_next(cx) {
            Poll::Ready(next) => Poll::Ready(next),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    fn poll_next(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Option<Notification>> {
        if let Poll::Ready(next) = self.notifications.poll_recv(cx) {
            return Poll::Ready(Some(next));
        }
        if self.poll_response(cx).is_ready() {
            return Poll::Ready(self.notifications.close_and_recv());
        }
        self.notifications.poll_recv(cx).map(Some)
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

    use mrtr_codec::KeyRing;
    use mrtr_schema::capabilities::{ClientCapabilities, Implementation};
    use mrtr_transport::{IncomingRequest, too_many_requests};
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

    /// Refuses all subscriptions but the first and the one after `refusals` others.
    struct Moody {
        error: ErrorObject,
        refusals: usize,
        requests: Mutex<Vec<Instant>>,
        open: Mutex<Vec<NotificationSender>>,
    }

    impl Moody {
        fn new(error: ErrorObject, refusals: usize) -> Self {
            Self { error, refusals, requests: Mutex::default(), open: Mutex::default() }
        }
    }

    impl RequestHandler for Moody {
        async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> Response<RawJson> {
            let number = {
                let mut requests = self.requests.lock().unwrap();
                requests.push(Instant::now());
                requests.len()
            };
            if number > 1 && number - 1 <= self.refusals {
                return Response::error(Some(incoming.request.id), self.error.clone());
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

    /// Changes the subscription of a session after 1 s. Returns the times in seconds at which
    /// subscriptions were requested until `end`. Changes of the first subscription arrive also
    /// while the second is refused, and those of the second once it is accepted.
    async fn requests_until(end: Duration, error: ErrorObject, refusals: usize) -> Vec<u64> {
        let begun = Instant::now();
        let (gateway, session) = gateway(Moody::new(error, refusals));
        let context = Context::default();
        let (sender, mut changes) = mpsc::channel::<Notification>(8);
        let client = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(session.change(Change::Subscribe("a:1".to_owned())));
            for time in [begun + Duration::from_secs(2), begun + end] {
                sleep_until(time).await;
                let open = gateway.handler.open.lock().unwrap().last().unwrap().clone();
                assert!(open.try_send(Notification::from_raw("x", None)));
                assert_eq!(changes.recv().await.unwrap().method, "x");
            }
        };
        tokio::select! {
            () = listen(&gateway, &session, &context, &sender) => panic!("it has ended"),
            () = client => {}
        }
        let requests = gateway.handler.requests.lock().unwrap();
        requests.iter().map(|time| time.duration_since(begun).as_secs()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn refused_subscription_is_requested_again_with_growing_pauses() {
        let hour = Duration::from_hours(1);
        let broken = ErrorObject::internal("no");
        assert_eq!(requests_until(hour, broken.clone(), 3).await, [0, 1, 11, 31, 71]);
        let without_end = requests_until(hour, broken, usize::MAX).await;
        assert_eq!(without_end[..7], [0, 1, 11, 31, 71, 151, 311]);
        assert_eq!(without_end.len(), 17, "then one per 5 min: {without_end:?}");
        let limited = too_many_requests(Duration::from_mins(1));
        assert_eq!(requests_until(hour, limited, 2).await, [0, 1, 61, 121]);
        let wrong = ErrorObject::invalid_params("no");
        assert_eq!(requests_until(hour, wrong, usize::MAX).await, [0, 1]);
    }

    /// Its requests have succeeded, so its changes are not to be missed for long.
    #[tokio::test(start_paused = true)]
    async fn change_of_the_subscriptions_begins_with_the_shortest_pause() {
        let begun = Instant::now();
        let (gateway, session) = gateway(Moody::new(ErrorObject::internal("no"), usize::MAX));
        let (sender, _changes) = mpsc::channel::<Notification>(8);
        let context = Context::default();
        let client = async {
            for n in 1..=3 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert!(session.change(Change::Subscribe(format!("a:{n}"))));
            }
            tokio::time::sleep(Duration::from_secs(15)).await;
        };
        tokio::select! {
            () = listen(&gateway, &session, &context, &sender) => panic!("it has ended"),
            () = client => {}
        }
        let requests = gateway.handler.requests.lock().unwrap();
        let times: Vec<_> = requests.iter().map(|at| at.duration_since(begun).as_secs()).collect();
        assert_eq!(times, [0, 1, 2, 3, 13]);
    }

    #[tokio::test(start_paused = true)]
    async fn listening_ends_if_the_first_subscription_cannot_succeed() {
        struct Refusing;

        impl RequestHandler for Refusing {
            async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> Response<RawJson> {
                Response::error(Some(incoming.request.id), ErrorObject::invalid_params("no"))
            }
        }

        let (gateway, session) = gateway(Refusing);
        let (sender, _changes) = mpsc::channel::<Notification>(8);
        listen(&gateway, &session, &Context::default(), &sender).await;
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
