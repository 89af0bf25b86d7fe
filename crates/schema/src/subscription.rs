//! `subscriptions/listen` (specification: basic patterns, "Subscriptions").

use serde::{Deserialize, Serialize};

use crate::Object;
use crate::jsonrpc::{ErrorObject, Request, RequestId};
use crate::meta::RequestMeta;
use crate::result::ResultType;
use crate::setters::setters;

/// The methods of the notifications on a subscription.
pub mod name {
    /// The first notification: the filter that the server accepted.
    pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
    /// The list of tools has changed.
    pub const TOOLS: &str = "notifications/tools/list_changed";
    /// The list of prompts has changed.
    pub const PROMPTS: &str = "notifications/prompts/list_changed";
    /// The list of resources has changed.
    pub const RESOURCES: &str = "notifications/resources/list_changed";
    /// A resource has changed.
    pub const RESOURCE_UPDATED: &str = "notifications/resources/updated";
    /// A task has changed; see [`TaskNotification`](crate::tasks::TaskNotification).
    pub const TASK: &str = "notifications/tasks";
}

/// The `_meta` key of a notification's subscription: the id of the `subscriptions/listen` request.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The changes that a client subscribes to. The server must not send others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
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
    /// Changes of the tasks with these identifiers; see [`tasks`](crate::tasks). The client must
    /// declare the extension in the same request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub task_ids: Vec<String>,
}

impl SubscriptionFilter {
    /// Creates a filter that selects nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects changes of the list of tools.
    pub fn with_tools(mut self) -> Self {
        self.tools_list_changed = true;
        self
    }

    /// Selects changes of the list of prompts.
    pub fn with_prompts(mut self) -> Self {
        self.prompts_list_changed = true;
        self
    }

    /// Selects changes of the list of resources.
    pub fn with_resources(mut self) -> Self {
        self.resources_list_changed = true;
        self
    }

    /// Selects changes of the resource with this URI.
    pub fn with_resource(mut self, uri: impl Into<String>) -> Self {
        self.resource_subscriptions.push(uri.into());
        self
    }

    /// Selects changes of the task with this identifier.
    pub fn with_task(mut self, task_id: impl Into<String>) -> Self {
        self.task_ids.push(task_id.into());
        self
    }
}

/// Parameters of `subscriptions/listen`.
#[derive(Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ListenParams {
    /// The changes to announce.
    pub notifications: SubscriptionFilter,
    /// The request's `_meta`.
    #[serde(rename = "_meta", default)]
    pub meta: RequestMeta,
}

impl ListenParams {
    /// Creates parameters from the changes to announce.
    pub fn new(notifications: SubscriptionFilter) -> Self {
        Self { notifications, meta: RequestMeta::default() }
    }

    /// Decodes the parameters of a request.
    ///
    /// # Errors
    ///
    /// [`INVALID_PARAMS`](crate::jsonrpc::code::INVALID_PARAMS), naming the offending field.
    pub fn from_request(request: &Request) -> Result<Self, ErrorObject> {
        request.decode_params()
    }
}

/// Parameters of [`name::ACKNOWLEDGED`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Acknowledged {
    /// The part of the requested filter that the server accepted.
    pub notifications: SubscriptionFilter,
    /// Metadata, with [`SUBSCRIPTION_ID`].
    #[serde(rename = "_meta", default)]
    pub meta: Object,
}

impl Acknowledged {
    /// Creates an acknowledgement from the accepted filter and metadata.
    pub fn new(notifications: SubscriptionFilter, meta: Object) -> Self {
        Self { notifications, meta }
    }
}

/// Parameters of the other notifications on a subscription.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Changed {
    /// The URI of the resource, in [`name::RESOURCE_UPDATED`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Metadata, with [`SUBSCRIPTION_ID`].
    #[serde(rename = "_meta", default)]
    pub meta: Object,
}

setters!(Changed { with_uri(uri: String) });

impl Changed {
    /// Creates the parameters of a notification about a list.
    pub fn new(meta: Object) -> Self {
        Self { uri: None, meta }
    }
}

/// Result of `subscriptions/listen`, sent when the server ends the subscription.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ListenResult {
    /// Always complete.
    #[serde(default)]
    pub result_type: ResultType,
    /// Metadata, with [`SUBSCRIPTION_ID`].
    #[serde(rename = "_meta", default)]
    pub meta: Object,
}

impl ListenResult {
    /// Creates a result.
    pub fn new(meta: Object) -> Self {
        Self { result_type: ResultType::Complete, meta }
    }
}

/// Returns metadata with the [`SUBSCRIPTION_ID`] of a `subscriptions/listen` request.
pub fn subscription_meta(id: &RequestId) -> Object {
    // Serializing a string or an integer cannot fail.
    let id = serde_json::to_value(id).unwrap_or_default();
    Object::from_iter([(SUBSCRIPTION_ID.to_owned(), id)])
}
