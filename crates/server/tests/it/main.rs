//! Tests of the server through its wire format, with replicas that each get one round of a call.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod apps;
mod at_most_once;
mod build_errors;
mod cancellation;
#[cfg(feature = "development")]
mod development;
mod discovery;
mod edge_cases;
mod elicitation;
mod extractors;
mod groups;
mod hand_over;
mod handler_mistakes;
mod limits;
mod manual;
mod middleware;
mod pending_calls;
mod proof_keys;
mod race_and_optional;
#[cfg(all(feature = "redis", unix))]
mod redis_store;
mod refused_states;
mod request_state;
mod results;
#[cfg(feature = "validate")]
mod schema_validation;
mod scopes;
mod sealers;
mod single_use;
mod steps;
mod structured;
mod support;
mod suspension;
mod task_edges;
mod task_promises;
mod task_recovery;
mod task_single_use;
mod task_stores;
mod task_unconfirmed;
mod tasks;
mod telemetry;
mod testing;
mod updates;
mod upgrades;
mod visibility;
