//! What flows promise, over a fleet on which every leg runs on another replica.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cancellation;
mod discovery;
mod edge_cases;
mod elicitation;
mod hand_over;
mod handler_mistakes;
mod limits;
mod manual;
mod pending_calls;
mod race_and_optional;
#[cfg(all(feature = "redis", unix))]
mod redis_store;
mod request_state;
mod results;
#[cfg(feature = "validate")]
mod schema_validation;
mod single_use;
mod steps;
mod structured;
mod support;
mod suspension;
mod telemetry;
mod testing;
mod upgrades;
