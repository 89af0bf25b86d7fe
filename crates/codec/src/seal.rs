//! Sealing and opening: the cipher of a [`Seal`], with the claims inside.

use crate::claims::{self, Binding, UnixSeconds, Validity};
use crate::error::OpenError;

/// Turns bytes into tokens and tokens into bytes. [`crate::KeyRing`] does it with keys of its own;
/// implement this to do it with a KMS or an HSM. Claims are not its business: they are inside the
/// bytes, and [`open`] checks them for every implementation. Keeping audiences apart is: two services
/// must not be able to open each other's tokens, which a ring sees to by deriving its keys from the
/// audience.
pub trait Seal: Send + Sync {
    /// Encrypts and authenticates. The plaintext may be encrypted where it is: [`seal`] leaves room around it.
    ///
    /// # Errors
    ///
    /// If it cannot.
    fn seal(&self, plaintext: Vec<u8>) -> Result<String, SealError>;

    /// Decrypts, if the token is authentic.
    ///
    /// # Errors
    ///
    /// If it is not.
    fn open(&self, token: &str) -> Result<Vec<u8>, OpenError>;
}

/// Why nothing was sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The token would be longer than [`crate::MAX_LEN`].
    #[error("{0} bytes are too many to seal")]
    TooLong(usize),
    /// The operating system gave no random numbers.
    #[error("the operating system gave no random numbers")]
    NoRandomness,
    /// An implementation of [`Seal`] failed.
    #[error("the sealing service failed")]
    Unavailable,
}

/// State that has been opened: it was sealed by this service, for this request, and is still good.
#[derive(Debug)]
pub struct Opened {
    plaintext: Vec<u8>,
    body: usize,
    validity: Validity,
}

impl Opened {
    /// What was sealed.
    pub fn body(&self) -> &[u8] {
        self.plaintext.get(self.body..).unwrap_or_default()
    }

    /// From when to when the token is good.
    pub fn validity(&self) -> Validity {
        self.validity
    }
}

/// Seals `body` for the request that `binding` describes.
///
/// # Errors
///
/// If the token would be too long, or the sealer fails.
pub fn seal(
    sealer: &dyn Seal,
    binding: &Binding<'_>,
    validity: Validity,
    body: &[u8],
) -> Result<String, SealError> {
    sealer.seal(claims::pack(binding, validity, body))
}

/// Opens a token that came with the request that `binding` describes.
///
/// # Errors
///
/// [`OpenError`], of which the peer should learn nothing but that there was one.
pub fn open(
    sealer: &dyn Seal,
    token: &str,
    binding: &Binding<'_>,
    now: UnixSeconds,
) -> Result<Opened, OpenError> {
    let plaintext = sealer.open(token)?;
    let (validity, body) = claims::check(&plaintext, binding, now)?;
    Ok(Opened { plaintext, body, validity })
}
