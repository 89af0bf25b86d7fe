//! All layers together, over sockets, streams and processes.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod axum_mount;
#[cfg(unix)]
mod bearer;
#[cfg(unix)]
mod child;
mod client_set;
mod hostile;
mod http_wire;
#[cfg(all(feature = "legacy", feature = "postgres", feature = "redis", unix))]
mod legacy_bus;
mod legacy_calls;
#[cfg(feature = "legacy")]
mod legacy_client;
#[cfg(feature = "legacy")]
mod legacy_http;
#[cfg(feature = "legacy")]
mod legacy_server;
#[cfg(feature = "legacy")]
mod legacy_sessions;
#[cfg(feature = "legacy")]
mod legacy_stdio;
mod legacy_streams;
#[cfg(feature = "macros")]
mod macros;
mod malformed_input;
mod metrics;
mod notifications;
#[cfg(feature = "middleware")]
mod rate_limit;
mod raw_peer;
mod readiness;
mod server_process;
mod slow_peers;
mod stdio;
mod stdio_bounds;
mod stdio_client;
mod stdio_wire;
#[cfg(all(feature = "auth-client", feature = "auth-server"))]
mod step_up;
mod streams;
mod subscriptions;
