//! The session of a client of `multi-turn-sse`.

use ::http::HeaderMap;
use serde_json::Value;

/// What `initialize` has negotiated.
#[derive(Clone)]
pub(super) struct Session {
    /// The headers of all further requests.
    pub(super) headers: HeaderMap,
    /// The result of `initialize`.
    pub(super) server: Value,
}
