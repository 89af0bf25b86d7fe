//! The claims of a token: the request that it is bound to, and its validity.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::canonical::{self, CanonicalError};
use crate::encoding::{DecodeError, Decoder, Encoder};
use crate::error::OpenError;

/// The version of the claims' format.
const FORMAT: u8 = 1;

/// The flags of a caller: a principal, and a key.
const HAS_PRINCIPAL: u8 = 1;
const HAS_KEY: u8 = 2;

/// The tolerance for a token's time of issue, in seconds. The clocks of a service's replicas
/// differ.
const MAX_CLOCK_SKEW: u64 = 60;

/// A point in time, in seconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);

/// The time span in which a token is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The time of issue. A token issued more than 60 seconds in the future is rejected.
    pub issued: UnixSeconds,
    /// The time from which the token is rejected. There is no leeway.
    pub expires: UnixSeconds,
}

impl Validity {
    /// Creates a validity from `now` for `seconds`. The end saturates at [`u64::MAX`].
    pub fn starting(now: UnixSeconds, seconds: u64) -> Self {
        Self { issued: now, expires: UnixSeconds(now.0.saturating_add(seconds)) }
    }

    /// Checks that `now` is in the time span.
    fn check(self, now: UnixSeconds) -> Result<(), OpenError> {
        if now >= self.expires {
            Err(OpenError::Expired)
        } else if self.issued.0 > now.0.saturating_add(MAX_CLOCK_SKEW) {
            Err(OpenError::NotYetValid)
        } else {
            Ok(())
        }
    }
}

/// An authenticated caller, as identified by the authentication layer in front of the server.
///
/// A subject is unique within its issuer only. Do not derive a principal from an access token
/// itself: the token is renewed while the caller stays the same. A principal is cheap to clone.
///
/// ```
/// use mrtr_codec::Principal;
///
/// // The claims `iss`, `sub` and `client_id` of a verified access token.
/// let principal = Principal::new("https://login.example", "user-17").with_client("mobile-app");
/// assert_eq!(principal.subject(), "user-17");
/// assert_eq!(principal.client(), Some("mobile-app"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Principal {
    names: Arc<Names>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Names {
    issuer: String,
    subject: String,
    client: Option<String>,
}

impl Principal {
    /// Creates a principal that `issuer` identifies as `subject`.
    pub fn new(issuer: impl Into<String>, subject: impl Into<String>) -> Self {
        let (issuer, subject) = (issuer.into(), subject.into());
        Self { names: Arc::new(Names { issuer, subject, client: None }) }
    }

    /// Sets the OAuth client that the subject uses. A token sealed for one client is rejected from
    /// another.
    pub fn with_client(mut self, client: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.names).client = Some(client.into());
        self
    }

    /// Returns the issuer.
    pub fn issuer(&self) -> &str {
        &self.names.issuer
    }

    /// Returns the subject, which is unique within its issuer.
    pub fn subject(&self) -> &str {
        &self.names.subject
    }

    /// Returns the OAuth client, if one is set.
    pub fn client(&self) -> Option<&str> {
        self.names.client.as_deref()
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principal")
            .field("issuer", &self.names.issuer)
            .field("subject", &self.names.subject)
            .field("client", &self.names.client)
            .finish()
    }
}

/// A SHA-256 digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Creates a digest from its bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Digests JSON in its [canonical form](crate::canonical).
    ///
    /// Equal JSON has equal digests, regardless of white space, order of members and escapes.
    /// Absent JSON and `null` have the digest of `{}`.
    ///
    /// ```
    /// use mrtr_codec::Digest;
    ///
    /// let digest = Digest::from_json(Some(r#"{"day":"Friday","people":2}"#))?;
    /// assert_eq!(digest, Digest::from_json(Some(r#"{ "people": 2.0, "day": "Friday" }"#))?);
    /// assert_eq!(Digest::from_json(None)?, Digest::from_json(Some("{}"))?);
    /// # Ok::<(), mrtr_codec::canonical::CanonicalError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CanonicalError`] if `json` has no canonical form.
    pub fn from_json(json: Option<&str>) -> Result<Self, CanonicalError> {
        let canonical = canonical::canonicalize(json.unwrap_or("{}"))?;
        let bytes = if canonical == "null" { b"{}" } else { canonical.as_bytes() };
        Ok(Self(Sha256::digest(bytes).into()))
    }

    /// Digests a list of byte strings. Each is preceded by its length, so different lists have
    /// different digests.
    pub fn from_parts(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// Returns the bytes of the digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// The request that a token is bound to.
///
/// The binding is sealed with the state, and compared with the binding of the request that presents
/// the token.
///
/// ```
/// use mrtr_codec::{Binding, Digest, Principal};
///
/// let principal = Principal::new("https://login.example", "user-17");
/// let binding = Binding {
///     principal: Some(&principal),
///     proof_key: None,
///     method: "tools/call",
///     target: "book",
///     arguments: Digest::from_json(Some(r#"{"people":2}"#))?,
/// };
/// # Ok::<(), mrtr_codec::canonical::CanonicalError>(())
/// ```
// Not `non_exhaustive`: a new field has to be a compile error wherever a binding is made. A default
// would leave requests unbound.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    /// The caller. `None` is an anonymous caller, and equals only `None`.
    pub principal: Option<&'a Principal>,
    /// The thumbprint of the key that the caller proves to have (`DPoP`: RFC 9449, section 6.1).
    /// `None` if the caller proves no key.
    ///
    /// A token that was sealed without a key opens with any key and without: a caller may begin to
    /// prove one. A token that was sealed with a key opens with that key only.
    pub proof_key: Option<&'a str>,
    /// The method, such as `tools/call`.
    pub method: &'a str,
    /// The target of the method: the name of a tool or prompt, or the URI of a resource as given.
    pub target: &'a str,
    /// The digest of the arguments.
    pub arguments: Digest,
}

/// Encodes the claims.
///
/// ```text
/// claims = format (1 byte: 1)
///        ‖ issued ‖ expires                                       (numbers)
///        ‖ caller (1 byte: 1 if there is a principal, plus 2 if there is a key)
///          ‖ issuer ‖ subject ‖ (0 | 1 ‖ client)                  (texts, if there is a principal)
///          ‖ key                                                  (text, if there is one)
///        ‖ method ‖ target                                        (texts)
///        ‖ digest of the arguments (32 bytes)
///        ‖ body                                                   (the remaining bytes)
/// ```
pub(crate) fn encode(binding: &Binding<'_>, validity: Validity, body: &[u8]) -> Vec<u8> {
    // 512 bytes are enough for usual claims and for what a token adds, so that sealing in place
    // does not reallocate.
    let mut out = Encoder::with_capacity(512 + body.len());
    out.byte(FORMAT).number(validity.issued.0).number(validity.expires.0);
    let has = |is_present, flag| if is_present { flag } else { 0 };
    out.byte(
        has(binding.principal.is_some(), HAS_PRINCIPAL) | has(binding.proof_key.is_some(), HAS_KEY),
    );
    if let Some(principal) = binding.principal {
        out.bytes(principal.issuer().as_bytes()).bytes(principal.subject().as_bytes());
        out.option(principal.client().map(str::as_bytes));
    }
    if let Some(key) = binding.proof_key {
        out.bytes(key.as_bytes());
    }
    out.bytes(binding.method.as_bytes()).bytes(binding.target.as_bytes());
    out.raw(&binding.arguments.0).raw(body);
    out.finish()
}

/// Verifies the claims in `plaintext`, and returns the validity and the offset of the body.
pub(crate) fn verify(
    plaintext: &[u8],
    binding: &Binding<'_>,
    now: UnixSeconds,
) -> Result<(Validity, usize), OpenError> {
    let claims = Claims::decode(plaintext).map_err(|_| OpenError::UnknownFormat)?;
    claims.validity.check(now)?;
    let same_principal = match (claims.principal, binding.principal) {
        (None, None) => true,
        (Some((issuer, subject, client)), Some(caller)) => {
            issuer == caller.issuer() && subject == caller.subject() && client == caller.client()
        }
        _ => false,
    };
    if !same_principal {
        Err(OpenError::WrongPrincipal)
    } else if claims.proof_key.is_some() && claims.proof_key != binding.proof_key {
        Err(OpenError::WrongKey)
    } else if claims.method != binding.method {
        Err(OpenError::WrongMethod)
    } else if claims.target != binding.target {
        Err(OpenError::WrongTarget)
    } else if claims.arguments != binding.arguments.0 {
        Err(OpenError::WrongArguments)
    } else {
        Ok((claims.validity, plaintext.len() - claims.body.len()))
    }
}

/// Decoded claims.
struct Claims<'a> {
    validity: Validity,
    /// Issuer, subject and client.
    principal: Option<(&'a str, &'a str, Option<&'a str>)>,
    proof_key: Option<&'a str>,
    method: &'a str,
    target: &'a str,
    arguments: [u8; 32],
    body: &'a [u8],
}

impl<'a> Claims<'a> {
    fn decode(plaintext: &'a [u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder::new(plaintext);
        if input.byte()? != FORMAT {
            return Err(DecodeError);
        }
        let issued = UnixSeconds(input.number()?);
        let expires = UnixSeconds(input.number()?);
        let caller = input.byte()?;
        if caller & !(HAS_PRINCIPAL | HAS_KEY) != 0 {
            return Err(DecodeError);
        }
        let principal = match caller & HAS_PRINCIPAL {
            0 => None,
            _ => Some((input.text()?, input.text()?, input.optional_text()?)),
        };
        let proof_key = if caller & HAS_KEY == 0 { None } else { Some(input.text()?) };
        Ok(Self {
            validity: Validity { issued, expires },
            principal,
            proof_key,
            method: input.text()?,
            target: input.text()?,
            arguments: input.array()?,
            body: input.rest(),
        })
    }
}
