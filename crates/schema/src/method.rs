//! The names of the request methods that this crate has types for. Those of notifications are in
//! [`notification::name`](crate::notification::name) and
//! [`subscription::name`](crate::subscription::name).

/// `server/discover`
pub const DISCOVER: &str = "server/discover";
/// `tools/list`
pub const TOOLS_LIST: &str = "tools/list";
/// `tools/call`
pub const TOOLS_CALL: &str = "tools/call";
/// `prompts/list`
pub const PROMPTS_LIST: &str = "prompts/list";
/// `prompts/get`
pub const PROMPTS_GET: &str = "prompts/get";
/// `resources/list`
pub const RESOURCES_LIST: &str = "resources/list";
/// `resources/templates/list`
pub const RESOURCE_TEMPLATES_LIST: &str = "resources/templates/list";
/// `subscriptions/listen`
pub const LISTEN: &str = "subscriptions/listen";
/// `completion/complete`
pub const COMPLETE: &str = "completion/complete";
/// `resources/read`
pub const RESOURCES_READ: &str = "resources/read";
/// `tasks/get`, of the [`tasks`](crate::tasks) extension
pub const TASKS_GET: &str = "tasks/get";
/// `tasks/update`, of the [`tasks`](crate::tasks) extension
pub const TASKS_UPDATE: &str = "tasks/update";
/// `tasks/cancel`, of the [`tasks`](crate::tasks) extension
pub const TASKS_CANCEL: &str = "tasks/cancel";
/// `elicitation/create`, as an input request
pub const ELICITATION_CREATE: &str = "elicitation/create";
/// `sampling/createMessage`, as an input request
pub const SAMPLING_CREATE_MESSAGE: &str = "sampling/createMessage";
/// `roots/list`, as an input request
pub const ROOTS_LIST: &str = "roots/list";
