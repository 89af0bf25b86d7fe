//! Helpers that the tests share.

pub(crate) mod counter;
pub(crate) mod replicas;
pub(crate) mod requests;
pub(crate) mod single_use;
pub(crate) mod tasks;

pub(crate) use counter::Counter;
pub(crate) use mrtr_testkit::LogLines;
pub(crate) use replicas::{Text, alice, client, fleet, replica, ring, run, secret};
pub(crate) use requests::{call_tool, invalid_state, request, send_request, with_meta};
