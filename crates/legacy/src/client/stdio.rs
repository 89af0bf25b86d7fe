//! Legacy servers over standard streams.

mod any_revision_child;
mod handshake;
mod session;

pub use any_revision_child::AnyRevisionChild;
