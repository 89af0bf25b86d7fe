//! Legacy servers over HTTP.

mod any_revision;
mod session;

pub use any_revision::AnyRevisionClient;
