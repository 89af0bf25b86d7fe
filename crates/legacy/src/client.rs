//! Legacy servers, called by a client of the current revision.

mod adapter;
mod connection;
mod http;
mod mode;
mod request;
mod routes;
mod running_call;
mod suspended;

pub use http::AnyRevisionClient;
pub use mode::RevisionMode;
