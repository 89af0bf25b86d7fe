//! Streamable HTTP: the backends.

#[cfg(feature = "http-client")]
mod bearer;
#[cfg(feature = "http-endpoint")]
mod body;
#[cfg(feature = "http-client")]
mod client;
#[cfg(feature = "http-serve")]
mod connection;
#[cfg(feature = "http-endpoint")]
mod endpoint;
#[cfg(feature = "http-endpoint")]
mod load;
#[cfg(feature = "http-endpoint")]
mod ready;
#[cfg(feature = "http-endpoint")]
mod reply;
#[cfg(feature = "http-endpoint")]
mod same;
#[cfg(feature = "http-serve")]
mod serve;
#[cfg(feature = "http-serve")]
mod stream;

#[cfg(feature = "http-client")]
pub use bearer::Challenge;
#[cfg(feature = "http-client")]
pub use client::{HttpClient, HttpClientBuilder};
#[cfg(feature = "http-endpoint")]
pub use endpoint::{Endpoint, Limits};
#[cfg(feature = "http-endpoint")]
pub use ready::Ready;
#[cfg(feature = "http-endpoint")]
pub use reply::ResponseBody;
#[cfg(feature = "http-client")]
pub use reqwest;
#[cfg(feature = "http-serve")]
pub use serve::{ServeOptions, serve};
