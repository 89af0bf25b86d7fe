//! The client's side of streamable HTTP, on reqwest.

mod bearer;
mod builder;
mod credentials;
mod http_client;
mod raw_response;
mod response;
mod server_name;
#[cfg(feature = "tls")]
mod tls;

pub use bearer::Challenge;
pub use builder::HttpClientBuilder;
pub use credentials::{Attempt, AttemptResponse, CredentialFuture, Credentials};
pub use http_client::HttpClient;
#[doc(hidden)]
pub use raw_response::RawResponse;
