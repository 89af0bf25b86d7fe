//! Sealed state for servers that keep none: a server gives its state to the client as a token, and
//! believes nothing of what comes back until the token has been opened.
//!
//! This crate is for people who build an MCP SDK, or who need such tokens elsewhere. It knows no MCP.
//! If you want to write a server, you are looking for the `mrtr` crate.
//!
//! ```
//! use mrtr_codec::{Binding, Digest, KeyRing, Principal, Secret, UnixSeconds, Validity, open, seal};
//!
//! let ring = KeyRing::builder("https://book.example/mcp")
//!     .active(Secret::generate()?)
//!     .build()?;
//! let principal = Principal::new("https://login.example", "user-17");
//! let binding = Binding {
//!     principal: Some(&principal),
//!     method: "tools/call",
//!     target: "book",
//!     arguments: Digest::of_json(Some(r#"{"people":2}"#))?,
//! };
//! let now = UnixSeconds(1_785_196_800);
//! let token = seal(&ring, &binding, Validity::starting(now, 600), b"what I know so far")?;
//!
//! let opened = open(&ring, &token, &binding, UnixSeconds(1_785_196_830))?;
//! assert_eq!(opened.body(), b"what I know so far");
//!
//! let late = open(&ring, &token, &binding, UnixSeconds(1_785_199_999)).unwrap_err();
//! assert_eq!(late.reason(), "expired");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - A token says nothing to whoever holds it, and cannot be changed: AES-256-GCM with a key of its
//!   own per token, derived from a random 192-bit nonce ([`xaes`]).
//! - A token opens only for the audience, principal, method, target and arguments it was sealed for,
//!   and only while it is valid. Every refusal has a [`OpenError::reason`] for the log.
//! - No key is tried: the key id in the token names exactly one.
//! - Strict: one encoding for one token, nothing may trail.
//! - Secrets, the keys of a ring and the keys of tokens are wiped from memory when they are no longer needed. So are the
//!   copies that the ciphers leave on the stack, as far down as they were seen to reach (x86-64, with and without
//!   optimization; a test reads the process's own memory). What was sealed is not: it is the caller's.
//! - No clock is read; no random numbers either, except by [`Secret::generate`] and by sealing with the
//!   feature `os-rng` (on by default).
//!
//! # What it does not do
//!
//! - It does not stop a token from being used twice while it is valid, nor an older token of the same
//!   flow from being used instead of a newer one. Whoever needs that keeps a record on the server, as
//!   `mrtr-server` does for what is for single use.
//! - It does not hide how long the state is.
//!
//! # Modules
//!
//! [`xaes`] the cipher · [`canonical`] one form for equal JSON · [`pack`] the encoding of the claims

pub mod canonical;
mod claims;
pub mod encoding;
mod error;
mod gcm;
mod key;
mod key_source;
mod ring;
mod rotation;
mod seal;
mod token;
pub mod xaes;

pub use claims::{Binding, Digest, Principal, UnixSeconds, Validity};
pub use error::OpenError;
pub use key::{Secret, SecretError};
pub use key_source::{Kms, LoadError};
pub use ring::{KeyRing, KeyRingBuilder, RingError};
pub use rotation::{RotationError, SharedKeyRing};
pub use seal::{Opened, Seal, SealError, open, seal};
pub use token::MAX_LEN;
