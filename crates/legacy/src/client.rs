//! Legacy servers, called by a client of the current revision.

mod adapter;
mod connection;
mod era;
mod http;
mod mode;
mod open_session;
mod pages;
mod question;
mod request;
mod routes;
mod running_call;
mod stdio;
mod subscription;
mod suspended;
#[cfg(test)]
mod tests;

pub use http::AnyRevisionClient;
pub use mode::RevisionMode;
pub use stdio::AnyRevisionChild;
