//! The server's side of streamable HTTP.

mod admission;
mod body;
mod endpoint;
mod event_stream;
mod legacy;
mod legacy_handler;
mod limits;
mod meta_cache;
mod readiness;
mod rejection;
mod response;
#[cfg(feature = "http-serve")]
mod serve;
mod shared;

pub use admission::Permit;
pub use endpoint::Endpoint;
pub use event_stream::{EventSource, push_event};
pub use legacy_handler::LegacyHandler;
pub use limits::RequestLimits;
pub use readiness::Readiness;
pub use response::{ResponseBody, event_stream};
#[cfg(feature = "http-serve")]
pub use serve::{ServeOptions, serve};
