//! `subscriptions/listen`: a request whose response is sent when the server shuts down.

use std::sync::Arc;

use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::peer_text::quote;
use mrtr_schema::subscription::{
    Acknowledged, Changed, ListenParams, ListenResult, SubscriptionFilter, name, subscription_meta,
};
use mrtr_schema::tasks::TaskNotification;
use mrtr_schema::{Object, method, uri};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::complete;
use super::scopes::check_scopes;
use crate::changes::Change;
use crate::registry::{Constants, Methods, Registry, ResponseFuture};
use crate::request_parts::RequestParts;
use crate::tasks::{TaskUpdates, either};

/// Maximum number of resources in one subscription.
const MAX_RESOURCES: usize = 1_000;

/// Maximum size of the request in bytes. A subscription keeps it for as long as it lasts, and the
/// bytes count against what all requests may hold at once.
const MAX_PARAMS: usize = 256 << 10;

pub(crate) const METHODS: Methods = &[(method::LISTEN, listen)];

fn listen(
    server: Arc<Registry>,
    request: &Request,
    parts: Box<RequestParts>,
) -> ResponseFuture<'_> {
    Box::pin(async move {
        if request.params.as_ref().is_some_and(|params| params.as_str().len() > MAX_PARAMS) {
            let why = "Invalid params: a subscription may have at most 256 KiB";
            return Err(ErrorObject::invalid_params(why));
        }
        let params = ListenParams::from_request(request)?;
        let parts = Arc::from(parts);
        let mut filter = server.supported_filter(params.notifications, &parts)?;
        let meta = || subscription_meta(&request.id);
        // Subscribed before the acknowledgement, so that no change after it is missed.
        let receiver = server.changes.subscribe();
        let _watched =
            server.changes.watch(parts.principal.clone(), &filter.resource_subscriptions);
        let task_ids = std::mem::take(&mut filter.task_ids);
        let tasks = server.subscribe_to_tasks(task_ids, &parts).await?;
        filter.task_ids = tasks.as_ref().map_or_else(Vec::new, |tasks| tasks.task_ids().to_owned());
        // From here on, only what updates do not change: a subscription can outlive many of them.
        let constants = Arc::clone(&server.constants);
        drop(server);
        let listening = {
            let acknowledged = Acknowledged::new(filter.clone(), meta());
            parts.notifier.send_waiting(name::ACKNOWLEDGED, &acknowledged).await
        };
        if listening {
            let changes = send_changes(&constants, &filter, receiver, &parts, meta);
            either(changes, send_tasks(tasks, &parts, meta)).await;
        }
        let mut ended = meta();
        ended.extend(constants.meta.clone());
        complete(&ListenResult::new(ended))
    })
}

/// Sends the changes of lists and resources, until the server shuts down or the client disconnects.
async fn send_changes(
    server: &Constants,
    filter: &SubscriptionFilter,
    mut receiver: Option<Receiver<Change>>,
    parts: &RequestParts,
    meta: impl Fn() -> Object,
) {
    let is_hidden =
        |uri: &str| server.registry().is_none_or(|registry| !registry.may_watch(uri, parts));
    let mut listening = true;
    while let Some(changes) = receiver.as_mut().filter(|_| listening) {
        let notifications = match changes.recv().await {
            Ok(change) => notification_for(filter, change).into_iter().collect(),
            // Changes were missed, so everything may have changed.
            Err(RecvError::Lagged(_)) => all_notifications(filter),
            Err(RecvError::Closed) => break,
        };
        for (method, uri) in notifications {
            if uri.as_deref().is_some_and(is_hidden) {
                continue;
            }
            let mut changed = Changed::new(meta());
            changed.uri = uri;
            listening = listening && parts.notifier.send_waiting(method, &changed).await;
        }
    }
}

impl Registry {
    /// Returns true if the resource exists and is not hidden from the caller, who has its scopes.
    fn may_watch(&self, uri: &str, caller: &RequestParts) -> bool {
        let options = self.resource_options(uri);
        options.is_some_and(|options| check_scopes(options, caller, None).is_ok())
            && !self.hides_uri(uri, caller)
    }

    /// Reduces the requested filter to the lists and resources that this server has for the caller.
    fn supported_filter(
        &self,
        asked: SubscriptionFilter,
        caller: &RequestParts,
    ) -> Result<SubscriptionFilter, ErrorObject> {
        if asked.resource_subscriptions.len() > MAX_RESOURCES {
            let why =
                format!("Invalid params: at most {MAX_RESOURCES} resources in one subscription");
            return Err(ErrorObject::invalid_params(why));
        }
        for uri in &asked.resource_subscriptions {
            let wrong = |why| {
                let uri = quote(uri);
                ErrorObject::invalid_params(format!(
                    "Invalid params: invalid resource URI {uri}: {why}"
                ))
            };
            uri::validate(uri).map_err(wrong)?;
        }
        let mut resource_subscriptions = asked.resource_subscriptions;
        resource_subscriptions.retain(|uri| {
            self.publishes_changes
                && self.resource_options(uri).is_some_and(|options| options.subscribable)
                && self.may_watch(uri, caller)
        });
        let announced = self.announced();
        let mut granted = SubscriptionFilter::default();
        granted.task_ids = asked.task_ids;
        granted.tools_list_changed = asked.tools_list_changed && announced.tools;
        granted.prompts_list_changed = asked.prompts_list_changed && announced.prompts;
        granted.resources_list_changed = asked.resources_list_changed && announced.resources;
        granted.resource_subscriptions = resource_subscriptions;
        Ok(granted)
    }
}

/// Sends tasks, and again when they have changed, until the client disconnects.
async fn send_tasks(tasks: Option<TaskUpdates>, parts: &RequestParts, meta: impl Fn() -> Object) {
    if let Some(mut tasks) = tasks {
        while let Some(task) = tasks.next().await {
            let params = TaskNotification::new(task, meta());
            if !parts.notifier.send_waiting(name::TASK, &params).await {
                return;
            }
        }
    }
    // Other changes may follow.
    std::future::pending::<()>().await;
}

/// The method of a notification, and the resource that it concerns.
type ChangeNotification = (&'static str, Option<String>);

fn notification_for(filter: &SubscriptionFilter, change: Change) -> Option<ChangeNotification> {
    match change {
        Change::Tools => filter.tools_list_changed.then_some((name::TOOLS, None)),
        Change::Prompts => filter.prompts_list_changed.then_some((name::PROMPTS, None)),
        Change::Resources => filter.resources_list_changed.then_some((name::RESOURCES, None)),
        Change::Resource(uri) => filter
            .resource_subscriptions
            .contains(&uri)
            .then_some((name::RESOURCE_UPDATED, Some(uri))),
    }
}

fn all_notifications(filter: &SubscriptionFilter) -> Vec<ChangeNotification> {
    let lists = [Change::Tools, Change::Prompts, Change::Resources];
    let resources = filter.resource_subscriptions.iter().cloned().map(Change::Resource);
    lists
        .into_iter()
        .chain(resources)
        .filter_map(|change| notification_for(filter, change))
        .collect()
}
