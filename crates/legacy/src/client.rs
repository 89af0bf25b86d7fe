//! Legacy servers, called by a client of the current revision.

mod adapter;
mod connection;
mod era;
mod http;
mod mode;
mod request;
mod routes;
mod running_call;
mod stdio;
mod suspended;

pub use http::AnyRevisionClient;
pub use mode::RevisionMode;
pub use stdio::AnyRevisionChild;
