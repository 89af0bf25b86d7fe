//! Sealed tokens that carry a stateless server's state through its clients.
//!
//! A server seals its state into a token, sends the token to the client, and receives it with the
//! client's next request. The state is encrypted and authenticated with AES-256-GCM. It is bound to
//! one service, caller, method, target and set of arguments, and it expires.
//!
//! This crate is for authors of MCP SDKs and for other programs that need such tokens. It contains
//! nothing of MCP itself. To write an MCP server, use the `mrtr` crate.
//!
//! ```
//! use mrtr_codec::{Binding, Digest, KeyRing, Principal, Secret, UnixSeconds, Validity};
//! use mrtr_codec::{open, seal};
//!
//! let ring = KeyRing::builder("https://book.example/mcp")
//!     .active(Secret::generate()?)
//!     .build()?;
//! let principal = Principal::new("https://login.example", "user-17");
//! let binding = Binding {
//!     principal: Some(&principal),
//!     proof_key: None,
//!     method: "tools/call",
//!     target: "book",
//!     arguments: Digest::from_json(Some(r#"{"people":2}"#))?,
//! };
//! let now = UnixSeconds(1_785_196_800);
//! let token = seal(&ring, &binding, Validity::starting(now, 600), b"table 7")?;
//!
//! let opened = open(&ring, &token, &binding, UnixSeconds(1_785_196_830))?;
//! assert_eq!(opened.body(), b"table 7");
//!
//! let error = open(&ring, &token, &binding, UnixSeconds(1_785_199_999)).unwrap_err();
//! assert_eq!(error.reason(), "expired");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - **Confidentiality and integrity.** A client can neither read nor change a token. Each token is
//!   encrypted under its own key, which XAES-256-GCM derives from a random 192-bit nonce.
//! - **Binding.** A token opens only for the audience, principal, key, method, target and arguments
//!   that it was sealed for, and only during its [`Validity`]. [`OpenError::reason`] names the
//!   cause of a rejection for the server's log.
//! - **No trial decryption.** The key id in a token names exactly one key of the ring.
//! - **One encoding.** The same bytes have one token. Padding and trailing data are rejected.
//! - **Wiped secrets.** Secrets, ring keys and token keys are overwritten when they are dropped,
//!   and so are the copies that the ciphers leave on the stack. A test scans the memory of its
//!   process for them (Linux on x86-64, debug and release builds). Sealed and opened state is not
//!   wiped.
//! - **Determinism.** The crate does not read a clock. It uses random numbers only in
//!   [`Secret::generate`] and [`KeyRing::ephemeral`] and to choose nonces.
//!
//! # Not guaranteed
//!
//! - **Single use.** While it is valid, a token can be presented again, also after the client has
//!   received a newer token of the same call. `mrtr-server` adds a single-use store.
//! - **Hidden lengths.** The length of a token reveals the length of the state.
//!
//! # Features
//!
//! - `os-rng` (default): secrets and nonces from the operating system's random number generator.
//!   Without it, set [`KeyRingBuilder::nonce_source`].
//! - `aws-lc`: AES-256-GCM by `aws-lc-rs`, which is faster on long tokens and needs a C compiler.
//!   The tokens are the same.

pub mod canonical;
mod claims;
#[doc(hidden)]
pub mod encoding;
mod error;
mod gcm;
#[doc(hidden)]
pub mod hazmat;
mod key;
mod key_source;
mod ring;
mod rotation;
mod seal;
mod token;
mod wipe;
mod xaes;

pub use claims::{Binding, Digest, Principal, UnixSeconds, Validity};
pub use error::{OpenError, SealError};
pub use key::{Secret, SecretError};
pub use key_source::{Kms, LoadError};
pub use ring::{KeyRing, KeyRingBuilder, RingError};
pub use rotation::{RotationError, SharedKeyRing};
pub use seal::{Opened, Seal, open, seal};
pub use token::MAX_TOKEN_LEN;
pub use xaes::NONCE_LEN;
