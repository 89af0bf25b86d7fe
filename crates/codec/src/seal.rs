//! Sealing and opening of state that is bound to a request.

use crate::claims::{self, Binding, UnixSeconds, Validity};
use crate::error::{OpenError, SealError};

/// Turns bytes into tokens, and tokens back into bytes.
///
/// [`KeyRing`](crate::KeyRing) and [`SharedKeyRing`](crate::SharedKeyRing) implement it with keys
/// in memory. Implement it to use keys that may not leave an HSM, or to combine sealers.
///
/// An implementation provides confidentiality and integrity. It also has to keep audiences apart: a
/// service must not be able to open another service's tokens. A key ring does so by deriving its
/// keys from the audience. The functions [`seal`] and [`open`] add the claims (principal, request
/// and validity) and check them, for every implementation.
///
/// # Examples
///
/// A sealer for a service whose audience has changed. It still opens tokens of the former audience:
///
/// ```
/// use mrtr_codec::{KeyRing, OpenError, Seal, SealError, Secret};
///
/// struct Renamed {
///     current: KeyRing,
///     former: KeyRing,
/// }
///
/// impl Seal for Renamed {
///     fn seal(&self, plaintext: Vec<u8>) -> Result<String, SealError> {
///         self.current.seal(plaintext)
///     }
///
///     fn open(&self, token: &str) -> Result<Vec<u8>, OpenError> {
///         match self.current.open(token) {
///             Err(OpenError::UnknownKey) => self.former.open(token),
///             result => result,
///         }
///     }
/// }
///
/// let secret = Secret::generate()?;
/// let ring = |audience| KeyRing::builder(audience).active(secret.clone()).build();
/// let token = ring("https://old.example/mcp")?.seal(b"table 7".to_vec())?;
/// let sealer = Renamed {
///     current: ring("https://new.example/mcp")?,
///     former: ring("https://old.example/mcp")?,
/// };
/// assert_eq!(sealer.open(&token)?, b"table 7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Seal: Send + Sync {
    /// Encrypts and authenticates `plaintext`.
    ///
    /// The vector may be encrypted in place: [`seal`] reserves room for what a token adds.
    ///
    /// # Errors
    ///
    /// [`SealError`] if the token would be too long, or if the sealer fails.
    fn seal(&self, plaintext: Vec<u8>) -> Result<String, SealError>;

    /// Decrypts an authentic token.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the token is not authentic.
    fn open(&self, token: &str) -> Result<Vec<u8>, OpenError>;
}

/// Opened state, which this service sealed for this request, and which has not expired.
#[derive(Debug)]
pub struct Opened {
    plaintext: Vec<u8>,
    body_start: usize,
    validity: Validity,
}

impl Opened {
    /// Returns the state that was sealed.
    pub fn body(&self) -> &[u8] {
        self.plaintext.get(self.body_start..).unwrap_or_default()
    }

    /// Returns the validity of the token.
    pub fn validity(&self) -> Validity {
        self.validity
    }
}

/// Seals `body` for the request that `binding` describes.
///
/// ```
/// use mrtr_codec::{Binding, Digest, KeyRing, UnixSeconds, Validity, open, seal};
///
/// let ring = KeyRing::ephemeral()?;
/// let arguments = Digest::from_json(Some(r#"{"people":2}"#))?;
/// let binding = Binding {
///     principal: None,
///     proof_key: None,
///     method: "tools/call",
///     target: "book",
///     arguments,
/// };
/// let now = UnixSeconds(1_785_196_800);
///
/// let token = seal(&ring, &binding, Validity::starting(now, 600), b"table 7")?;
/// assert_eq!(open(&ring, &token, &binding, now)?.body(), b"table 7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`SealError::TooLong`] if the token would be longer than
/// [`MAX_TOKEN_LEN`](crate::MAX_TOKEN_LEN), and the errors of the sealer.
pub fn seal(
    sealer: &dyn Seal,
    binding: &Binding<'_>,
    validity: Validity,
    body: &[u8],
) -> Result<String, SealError> {
    sealer.seal(claims::encode(binding, validity, body))
}

/// Opens a token that arrived with the request that `binding` describes.
///
/// Checks, in this order: the token's authenticity, its validity at `now`, and that principal,
/// key, method, target and arguments are those it was sealed for.
///
/// ```
/// use mrtr_codec::{Binding, Digest, KeyRing, OpenError, UnixSeconds, Validity, open, seal};
///
/// let ring = KeyRing::ephemeral()?;
/// let arguments = Digest::from_json(Some(r#"{"people":2}"#))?;
/// let binding = Binding {
///     principal: None,
///     proof_key: None,
///     method: "tools/call",
///     target: "book",
///     arguments,
/// };
/// let now = UnixSeconds(1_785_196_800);
/// let token = seal(&ring, &binding, Validity::starting(now, 600), b"table 7")?;
///
/// let other = Binding { target: "cancel", ..binding };
/// assert_eq!(open(&ring, &token, &other, now).unwrap_err(), OpenError::WrongTarget);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`OpenError`], with the cause for the log. Tell the peer only that its token was rejected.
pub fn open(
    sealer: &dyn Seal,
    token: &str,
    binding: &Binding<'_>,
    now: UnixSeconds,
) -> Result<Opened, OpenError> {
    let plaintext = sealer.open(token)?;
    let (validity, body_start) = claims::verify(&plaintext, binding, now)?;
    Ok(Opened { plaintext, body_start, validity })
}
