//! `subscriptions/listen` (specification: basic patterns, "Subscriptions").

use serde::{Deserialize, Serialize};

use crate::Object;
use crate::jsonrpc::RequestId;
use crate::meta::RequestMeta;
use crate::result::ResultType;

/// The names of the notifications on a subscription.
pub mod name {
    /// The first one: what the server agreed to announce.
    pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
    /// The list of tools has changed.
    pub const TOOLS: &str = "notifications/tools/list_changed";
    /// The list of prompts has changed.
    pub const PROMPTS: &str = "notifications/prompts/list_changed";
    /// The list of resources has changed.
    pub const RESOURCES: &str = "notifications/resources/list_changed";
    /// A resource has changed.
    pub const RESOURCE_UPDATED: &str = "notifications/resources/updated";
}

/// The `_meta` key that says which subscription a notification belongs to: the id of its request.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// What a client wants to be told. Nothing else may be sent to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionFilter {
    /// Changes of the list of tools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tools_list_changed: bool,
    /// Changes of the list of prompts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prompts_list_changed: bool,
    /// Changes of the list of resources.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resources_list_changed: bool,
    /// Changes of the resources with these URIs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_subscriptions: Vec<String>,
}

/// Parameters of `subscriptions/listen`.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListenParams {
    /// What to announce.
    pub notifications: SubscriptionFilter,
    /// The request's `_meta`.
    #[serde(rename = "_meta", default)]
    pub meta: RequestMeta,
}

/// Parameters of [`name::ACKNOWLEDGED`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Acknowledged {
    /// What the server will announce, of what was asked for.
    pub notifications: SubscriptionFilter,
    /// Metadata, [`SUBSCRIPTION_ID`] among it.
    #[serde(rename = "_meta", default)]
    pub meta: Object,
}

/// Parameters of the notifications about lists, and of [`name::RESOURCE_UPDATED`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Changed {
    /// The resource, in [`name::RESOURCE_UPDATED`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Metadata, [`SUBSCRIPTION_ID`] among it.
    #[serde(rename = "_meta", default)]
    pub meta: Object,
}

/// The end of a subscription that the server ends by itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenResult {
    /// Always complete.
    #[serde(default)]
    pub result_type: ResultType,
    /// Metadata, [`SUBSCRIPTION_ID`] among it.
    #[serde(rename = "_meta", default)]
    pub meta: Object,
}

/// `_meta` with the id of a subscription.
pub fn meta_of(id: &RequestId) -> Object {
    let id = serde_json::to_value(id).unwrap_or_default();
    Object::from_iter([(SUBSCRIPTION_ID.to_owned(), id)])
}
