//! Rules that the servers' sides of HTTP and stdio share.

pub(crate) mod initialize;
pub(crate) mod metrics;
