//! Subscriptions to what a legacy server announces to its session.

use mrtr_schema::capabilities::ListCapability;
use mrtr_schema::jsonrpc::{Notification, RequestId};
use mrtr_schema::subscription::{Changed, SubscriptionFilter, name, subscription_meta};

use crate::handshake::InitializeResult;

/// Returns the part of a filter that the server announces.
pub(super) fn granted_filter(
    mut asked: SubscriptionFilter,
    server: &InitializeResult,
) -> SubscriptionFilter {
    let capabilities = &server.capabilities;
    let announces = |list: &Option<ListCapability>| {
        list.as_ref().is_some_and(|list| list.list_changed == Some(true))
    };
    let resources = capabilities.resources.as_ref();
    asked.tools_list_changed &= announces(&capabilities.tools);
    asked.prompts_list_changed &= announces(&capabilities.prompts);
    asked.resources_list_changed &= resources.is_some_and(|all| all.list_changed == Some(true));
    if resources.is_none_or(|all| all.subscribe != Some(true)) {
        asked.resource_subscriptions.clear();
    }
    // There are no tasks in legacy revisions.
    asked.task_ids.clear();
    asked
}

/// Returns a notification as one of a subscription, if it was asked for.
pub(super) fn announced(
    notification: &Notification,
    filter: &SubscriptionFilter,
    id: &RequestId,
) -> Option<Notification> {
    let mut changed: Changed = notification.decode_params().ok()?;
    let is_wanted = match notification.method.as_str() {
        name::TOOLS => filter.tools_list_changed,
        name::PROMPTS => filter.prompts_list_changed,
        name::RESOURCES => filter.resources_list_changed,
        name::RESOURCE_UPDATED => changed.uri.as_ref().is_some_and(|uri| {
            filter.resource_subscriptions.iter().any(|whole| is_part(uri, whole))
        }),
        _ => false,
    };
    changed.meta = subscription_meta(id);
    let renamed = is_wanted.then(|| Notification::new(&*notification.method, &changed));
    renamed?.ok()
}

/// Returns true if a resource is the one that a client has subscribed to, or a part of it, as far
/// as their URIs show (2025-11-25, schema: `ResourceUpdatedNotificationParams`).
fn is_part(uri: &str, whole: &str) -> bool {
    uri.strip_prefix(whole).is_some_and(|rest| {
        rest.is_empty() || whole.ends_with('/') || rest.starts_with(['/', '?', '#'])
    })
}

#[cfg(test)]
mod tests {
    use super::is_part;

    #[test]
    fn parts_of_a_resource_begin_with_its_uri() {
        for part in ["file:///a", "file:///a/b", "file:///a?b", "file:///a#b"] {
            assert!(is_part(part, "file:///a"), "{part}");
        }
        assert!(is_part("file:///a/b", "file:///a/"));
        assert!(!is_part("file:///ab", "file:///a") && !is_part("file:///", "file:///a"));
    }
}
