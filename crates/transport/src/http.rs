//! Streamable HTTP: the client, the server's endpoint, and an HTTP server to run it.

#[cfg(feature = "http-client")]
mod client;
#[cfg(feature = "http-endpoint")]
mod server;

#[cfg(feature = "http-client")]
#[doc(hidden)]
pub use client::RawResponse;
#[cfg(feature = "http-client")]
pub use client::{
    Attempt, AttemptResponse, Challenge, CredentialFuture, Credentials, HttpClient,
    HttpClientBuilder,
};
#[cfg(feature = "http-endpoint")]
pub use server::{
    Endpoint, EventSource, LegacyHandler, Permit, Readiness, RequestLimits, ResponseBody,
    event_stream, push_event,
};
#[cfg(feature = "http-serve")]
pub use server::{ServeOptions, serve};
