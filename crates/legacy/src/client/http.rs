//! Legacy servers over HTTP.

mod any_revision;
mod session;
#[cfg(test)]
mod tests;

pub use any_revision::AnyRevisionClient;
