//! What flows promise, over a fleet on which every leg runs on another replica.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod asking;
mod choices;
#[cfg(feature = "validate")]
mod conform;
mod continuations;
mod corners;
mod ends;
mod fleet;
mod lists;
mod long;
mod manual;
mod mistakes;
mod moving_on;
mod observed;
#[cfg(all(feature = "redis", unix))]
mod redis;
mod refusals;
mod results;
mod single_use;
mod steps;
mod structured;
mod suspension;
mod testing;
mod upgrades;
