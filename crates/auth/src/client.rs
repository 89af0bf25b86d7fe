//! The client's side: logs in at the authorization server of an MCP server, and authorizes the
//! requests to it.
//!
//! The login itself is a state machine that takes events and returns actions. [`OAuthClient`]
//! carries them out with drivers: an HTTP client, a [`UserAgent`], and a [`TokenStore`].

pub(crate) mod authorization;
mod bound_issuer;
mod builder;
mod dpop;
mod drivers;
mod error;
pub(crate) mod fetch;
mod key;
mod lenient;
mod login;
mod logins;
mod logout;
mod loopback;
pub(crate) mod message;
mod oauth_client;
mod options;
mod proof_header;
pub(crate) mod random;
mod redirect_uri;
pub(crate) mod registration;
mod secret;
mod server;
mod session;
mod signing_key;
mod store;
#[cfg(feature = "tls")]
mod tls;
pub(crate) mod token;
mod token_client;
mod upgrades;
mod user_agent;

pub use authorization::{AuthorizationPage, CallbackError};
pub use builder::{BuildError, OAuthClientBuilder};
pub use error::LoginError;
pub use logout::Logout;
pub use loopback::Loopback;
pub use oauth_client::OAuthClient;
pub use options::DpopMode;
pub use registration::{ClientMetadata, ClientRegistration};
pub use secret::Secret;
pub use session::StoredSession;
pub use signing_key::{InvalidKey, SigningKey};
#[cfg(feature = "keyring")]
pub use store::KeyringStore;
pub use store::{FileStore, MemoryStore, TokenStore};
pub use user_agent::{AssertionSource, CallbackReceiver, DriverFuture, UserAgent};
