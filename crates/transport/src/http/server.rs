//! The server's side of streamable HTTP.

mod admission;
mod body;
#[cfg(feature = "http-serve")]
mod connections;
mod endpoint;
mod meta_cache;
mod readiness;
mod response;
#[cfg(feature = "http-serve")]
mod serve;
#[cfg(feature = "http-serve")]
mod tracked_io;

pub use endpoint::{Endpoint, RequestLimits};
pub use readiness::Readiness;
pub use response::ResponseBody;
#[cfg(feature = "http-serve")]
pub use serve::{ServeOptions, serve};
