//! Accounts of users at third parties, which a server uses as an OAuth client (specification:
//! elicitation, URL mode for OAuth flows).
//!
//! An [`AccountConnector`] knows one third party. A handler [`connect`](AccountConnector::connect)s
//! the caller's account in the middle of a call: the client shows the URL of a page of this server,
//! on which the user goes on to the third party. The connector is also the tower service of that
//! page and of the redirect URI.
//!
//! ```
//! use mrtr_auth::client::ClientRegistration;
//! use mrtr_auth::connect::{AccountConnector, BuildError, MemoryAccounts};
//! use mrtr_codec::{Principal, SharedKeyRing};
//! use mrtr_server::{Context, Result, State};
//!
//! # fn example(ring: SharedKeyRing) -> std::result::Result<(), BuildError> {
//! let github = AccountConnector::builder("github", "GitHub", "https://booking.example")
//!     .issuer("https://github.com/login/oauth")
//!     .authorization_endpoint("https://github.com/login/oauth/authorize")
//!     .token_endpoint("https://github.com/login/oauth/access_token")
//!     .client(ClientRegistration::with_secret("client-id", "client-secret"))
//!     .scopes(["repo"])
//!     .sealer(ring)
//!     .store(MemoryAccounts::new())
//!     // A layer in front of the pages has found out who uses the browser.
//!     .identify(|head| head.extensions.get::<Principal>().cloned())
//!     .build()?;
//! // Mount `github` at both of its paths, and register `github.redirect_uri()` at GitHub.
//! let paths = [github.start_path(), github.redirect_path()];
//! assert_eq!(paths, ["/connect/github", "/connect/github/callback"]);
//!
//! # Ok(())
//! # }
//!
//! async fn list(cx: Context, State(github): State<AccountConnector>) -> Result<String> {
//!     let account = github.connect(&cx).await?;
//!     let _header = format!("Bearer {}", account.access_token());
//!     Ok("Listed.".to_owned())
//! }
//! ```
//!
//! # What is checked
//!
//! - The user of the browser is the user who called, on each page. An attacker who sends
//!   a link to another user connects nothing.
//! - The callback belongs to the page that this browser has seen. The `state`, the PKCE verifier
//!   and the application that asked are sealed in a cookie for 10 minutes (`__Host-`, `HttpOnly`,
//!   `Secure`, `SameSite=Lax`).
//! - The callback comes from the third party, if that names itself (RFC 9207).
//! - The user agrees on a page of this server that names the third party and the application, since
//!   a third party that has asked once may not ask again (specification: confused deputy).
//!
//! Links and cookies are sealed with the server's keys, so any replica answers any request. Tokens
//! go to the [`AccountStore`] and to the handler. They are not in the journal, in a request state,
//! in a response to a client, or in the log.

mod account;
mod builder;
mod connector;
mod page;
mod pages;
mod ticket;

pub use account::{Account, AccountStore, MemoryAccounts, StoredAccount};
pub use builder::{AccountConnectorBuilder, BuildError};
pub use connector::AccountConnector;
