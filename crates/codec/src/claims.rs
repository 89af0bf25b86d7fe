//! What a token is bound to.

use sha2::{Digest as _, Sha256};

use crate::canonical::{self, CanonicalError};
use crate::encoding::{Packer, UnpackError, Unpacker};
use crate::error::OpenError;

/// The version of the claims' format.
const FORMAT: u8 = 1;

/// How far in the future a token may have been issued: the clocks of a fleet are not the same.
const SKEW: u64 = 60;

/// Seconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);

/// From when to when a token is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// When it was issued. A token from more than 60 seconds in the future is refused.
    pub issued: UnixSeconds,
    /// From when on it is refused. There is no leeway.
    pub expires: UnixSeconds,
}

impl Validity {
    /// Good from `now` for `seconds`. A time beyond the end of time ends there.
    pub fn starting(now: UnixSeconds, seconds: u64) -> Self {
        Self { issued: now, expires: UnixSeconds(now.0.saturating_add(seconds)) }
    }

    fn check(self, now: UnixSeconds) -> Result<(), OpenError> {
        if now >= self.expires {
            Err(OpenError::Expired)
        } else if self.issued.0 > now.0.saturating_add(SKEW) {
            Err(OpenError::NotYetValid)
        } else {
            Ok(())
        }
    }
}

/// Who calls, as established by the authentication in front of the server. Never an access token:
/// those change while the caller stays the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal {
    issuer: String,
    subject: String,
    client: Option<String>,
}

impl Principal {
    /// Whom `issuer` calls `subject`. Subjects are only unique within their issuer.
    pub fn new(issuer: impl Into<String>, subject: impl Into<String>) -> Self {
        Self { issuer: issuer.into(), subject: subject.into(), client: None }
    }

    /// The OAuth client through which the subject calls. State does not move between clients.
    pub fn with_client(mut self, client: impl Into<String>) -> Self {
        self.client = Some(client.into());
        self
    }

    /// Who says so.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Who it is.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Through which client.
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }
}

/// A SHA-256 digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Digests arguments in their [canonical form](crate::canonical). Absent, `null` and `{}` are the
    /// same.
    ///
    /// # Errors
    ///
    /// If `json` has no canonical form.
    pub fn of_json(json: Option<&str>) -> Result<Self, CanonicalError> {
        let canonical = canonical::canonicalize(json.unwrap_or("{}"))?;
        let bytes = if canonical == "null" { b"{}" } else { canonical.as_bytes() };
        Ok(Self(Sha256::digest(bytes).into()))
    }

    /// Digests parts, each with its length in front, so that no two lists of parts are the same.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

/// The request that a token belongs to: sealed with it, and compared when it comes back.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    /// Who calls. `None` is an anonymous caller, and matches only `None`.
    pub principal: Option<&'a Principal>,
    /// The method, such as `tools/call`.
    pub method: &'a str,
    /// What it is called on: a tool's or prompt's name, a resource's URI as given.
    pub target: &'a str,
    /// The digest of the arguments.
    pub arguments: Digest,
}

/// ```text
/// claims = format (1 byte: 1)
///        ‖ issued ‖ expires                                       (numbers)
///        ‖ 0  |  1 ‖ issuer ‖ subject ‖ (0 | 1 ‖ client)          (texts)
///        ‖ method ‖ target                                        (texts)
///        ‖ digest of the arguments (32 bytes)
///        ‖ body                                                   (all that is left)
/// ```
pub(crate) fn pack(binding: &Binding<'_>, validity: Validity, body: &[u8]) -> Vec<u8> {
    // Room for claims of the usual length, and for what a token has around them.
    let mut out = Packer::with_capacity(512 + body.len());
    out.byte(FORMAT).number(validity.issued.0).number(validity.expires.0);
    match binding.principal {
        None => drop(out.byte(0)),
        Some(p) => {
            out.byte(1).bytes(p.issuer.as_bytes()).bytes(p.subject.as_bytes());
            out.option(p.client.as_ref().map(String::as_bytes));
        }
    }
    out.bytes(binding.method.as_bytes()).bytes(binding.target.as_bytes());
    out.raw(&binding.arguments.0).raw(body);
    out.finish()
}

/// Checks the claims, and returns the validity and where the body starts.
pub(crate) fn check(
    plaintext: &[u8],
    binding: &Binding<'_>,
    now: UnixSeconds,
) -> Result<(Validity, usize), OpenError> {
    let claims = Claims::unpack(plaintext).map_err(|_| OpenError::UnknownFormat)?;
    claims.validity.check(now)?;
    let same_principal = match (claims.principal, binding.principal) {
        (None, None) => true,
        (Some((issuer, subject, client)), Some(now)) => {
            issuer == now.issuer && subject == now.subject && client == now.client.as_deref()
        }
        _ => false,
    };
    if !same_principal {
        Err(OpenError::WrongPrincipal)
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

struct Claims<'a> {
    validity: Validity,
    principal: Option<(&'a str, &'a str, Option<&'a str>)>,
    method: &'a str,
    target: &'a str,
    arguments: [u8; 32],
    body: &'a [u8],
}

impl<'a> Claims<'a> {
    fn unpack(plaintext: &'a [u8]) -> Result<Self, UnpackError> {
        let mut input = Unpacker::new(plaintext);
        if input.byte()? != FORMAT {
            return Err(UnpackError);
        }
        let issued = UnixSeconds(input.number()?);
        let expires = UnixSeconds(input.number()?);
        let principal = match input.byte()? {
            0 => None,
            1 => Some((input.text()?, input.text()?, input.optional_text()?)),
            _ => return Err(UnpackError),
        };
        Ok(Self {
            validity: Validity { issued, expires },
            principal,
            method: input.text()?,
            target: input.text()?,
            arguments: input.array()?,
            body: input.rest(),
        })
    }
}
