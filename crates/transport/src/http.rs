//! Streamable HTTP: the backends.

#[cfg(feature = "http-client")]
mod client;
#[cfg(feature = "http-endpoint")]
mod server;

#[cfg(feature = "http-client")]
pub use client::{Challenge, HttpClient, HttpClientBuilder};
#[cfg(feature = "http-client")]
pub use reqwest;
#[cfg(feature = "http-endpoint")]
pub use server::{Endpoint, Readiness, RequestLimits, ResponseBody};
#[cfg(feature = "http-serve")]
pub use server::{ServeOptions, serve};
