//! The methods and notifications that only legacy revisions have.

/// Opens a session.
pub const INITIALIZE: &str = "initialize";
/// The client's notification that it has read the result of `initialize`.
pub const INITIALIZED: &str = "notifications/initialized";
/// Checks that the peer answers.
pub const PING: &str = "ping";
/// Sets the least severe level of log messages of a session.
pub const SET_LEVEL: &str = "logging/setLevel";
/// Subscribes the session to changes of a resource.
pub const SUBSCRIBE: &str = "resources/subscribe";
/// Ends a subscription to a resource.
pub const UNSUBSCRIBE: &str = "resources/unsubscribe";
