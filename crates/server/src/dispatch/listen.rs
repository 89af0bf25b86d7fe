//! `subscriptions/listen`: a request that is answered when the server goes.

use std::sync::Arc;

use mrtr_schema::jsonrpc::{ErrorObject, Notification, Request, RequestId};
use mrtr_schema::subscription::{
    Acknowledged, Changed, ListenParams, ListenResult, SubscriptionFilter, meta_of, name,
};
use mrtr_schema::{method, uri};
use mrtr_transport::NotificationSender;
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;

use super::complete;
use crate::changes::Change;
use crate::registry::Registry;
use crate::registry::{Methods, Outcome, ResponseFuture};
use crate::request_parts::RequestParts;

/// How many resources one subscription may name.
const MOST_RESOURCES: usize = 1_000;

pub(crate) const METHODS: Methods = &[(method::LISTEN, listen)];

fn listen<'r>(
    server: &'r Arc<Registry>,
    request: &'r Request,
    parts: Box<RequestParts>,
) -> ResponseFuture<'r> {
    Box::pin(async move {
        let params = ListenParams::of(request)?;
        server.listen(&request.id, params, &parts.notifier.outbox).await
    })
}

impl Registry {
    async fn listen(
        &self,
        id: &RequestId,
        params: ListenParams,
        outbox: &NotificationSender,
    ) -> Outcome {
        let filter = self.honoured(params.notifications)?;
        let meta = || meta_of(id);
        // Subscribed before it is acknowledged: what changes from then on is not missed.
        let receiver = self.changes.subscribe();
        let acknowledged = Acknowledged { notifications: filter.clone(), meta: meta() };
        let mut listening = send(outbox, name::ACKNOWLEDGED, &acknowledged).await;
        let mut receiver = receiver.filter(|_| listening);
        while let Some(changes) = receiver.as_mut().filter(|_| listening) {
            let wanted = match changes.recv().await {
                Ok(change) => filter_one(&filter, change).into_iter().collect(),
                // Some were missed, so all of them may have changed.
                Err(RecvError::Lagged(_)) => everything(&filter),
                Err(RecvError::Closed) => break,
            };
            for (method, uri) in wanted {
                listening = listening && send(outbox, method, &Changed { uri, meta: meta() }).await;
            }
        }
        let mut ended = meta();
        ended.extend(self.meta.clone());
        complete(&ListenResult { meta: ended, ..ListenResult::default() })
    }

    /// Of what is asked for, what this server has.
    fn honoured(&self, asked: SubscriptionFilter) -> Result<SubscriptionFilter, ErrorObject> {
        if asked.resource_subscriptions.len() > MOST_RESOURCES {
            let why =
                format!("Invalid params: at most {MOST_RESOURCES} resources in one subscription");
            return Err(ErrorObject::invalid_params(why));
        }
        for uri in &asked.resource_subscriptions {
            let wrong = |why| {
                let uri = ErrorObject::quote(uri);
                ErrorObject::invalid_params(format!("Invalid params: {uri} is no URI: {why}"))
            };
            uri::check(uri).map_err(wrong)?;
        }
        let mut resource_subscriptions = asked.resource_subscriptions;
        resource_subscriptions.retain(|uri| self.publishes_changes && self.has_resource(uri));
        let has = |asked: bool, all: bool| asked && all && self.publishes_changes;
        Ok(SubscriptionFilter {
            tools_list_changed: has(asked.tools_list_changed, !self.tools.is_empty()),
            prompts_list_changed: has(asked.prompts_list_changed, !self.prompts.is_empty()),
            resources_list_changed: has(asked.resources_list_changed, self.has_resources()),
            resource_subscriptions,
        })
    }
}

type Wanted = (&'static str, Option<String>);

fn filter_one(filter: &SubscriptionFilter, change: Change) -> Option<Wanted> {
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

fn everything(filter: &SubscriptionFilter) -> Vec<Wanted> {
    let lists = [Change::Tools, Change::Prompts, Change::Resources];
    let resources = filter.resource_subscriptions.iter().cloned().map(Change::Resource);
    lists.into_iter().chain(resources).filter_map(|change| filter_one(filter, change)).collect()
}

/// Sends when there is room; `false` if the client is gone.
async fn send(outbox: &NotificationSender, method: &str, params: &impl Serialize) -> bool {
    match Notification::new(method, params) {
        Ok(notification) => outbox.send(notification).await,
        Err(_) => false,
    }
}
