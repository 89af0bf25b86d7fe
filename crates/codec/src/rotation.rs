//! A ring that can be replaced while it is in use.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::error::OpenError;
use crate::ring::KeyRing;
use crate::seal::{Seal, SealError};

/// A [`KeyRing`] that can be replaced without a restart. Clones share it; sealing and opening take no lock, and see
/// either the old ring or the new one.
///
/// ```
/// use mrtr_codec::{KeyRing, Secret, SharedKeyRing};
///
/// let (old, new) = (Secret::generate()?, Secret::generate()?);
/// let ring = |b: mrtr_codec::KeyRingBuilder| b.build();
/// let start = || KeyRing::builder("https://service.example/mcp");
/// let shared = SharedKeyRing::new(ring(start().active(old.clone()))?);
/// // Three deployments, or three reloads, each of them on all replicas before the next:
/// shared.replace(ring(start().active(old.clone()).staged(new.clone()))?)?;
/// shared.replace(ring(start().active(new.clone()).retiring(old))?)?;
/// shared.replace(ring(start().active(new))?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SharedKeyRing(Arc<ArcSwap<KeyRing>>);

/// Why a ring may not follow another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RotationError {
    /// The new active key was not in the ring before.
    #[error(
        "the new active key was not in the ring before, so replicas that have not been told of it cannot open its \
         tokens: first make it `staged` on all replicas, then `active` with the old one `retiring`, and drop the old \
         one when its tokens have expired"
    )]
    NotStaged,
    /// The key that was active until now is not in the new ring.
    #[error(
        "the key that was active until now is not in the new ring, so its tokens could not be opened: keep it \
         `retiring` until they have expired"
    )]
    NotRetiring,
}

impl SharedKeyRing {
    /// Starts with `ring`.
    pub fn new(ring: KeyRing) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(ring)))
    }

    /// Replaces the ring, if no token is refused for it on a fleet that goes through the same steps.
    ///
    /// # Errors
    ///
    /// [`RotationError`], and the ring stays as it was.
    pub fn replace(&self, ring: KeyRing) -> Result<(), RotationError> {
        let old = self.0.load();
        if !old.has(ring.active_id()) {
            return Err(RotationError::NotStaged);
        }
        if !ring.has(old.active_id()) {
            return Err(RotationError::NotRetiring);
        }
        self.0.store(Arc::new(ring));
        Ok(())
    }

    /// Replaces the ring whatever becomes of open flows: for a secret that got out.
    pub fn replace_at_once(&self, ring: KeyRing) {
        self.0.store(Arc::new(ring));
    }
}

impl Seal for SharedKeyRing {
    fn seal(&self, plaintext: Vec<u8>) -> Result<String, SealError> {
        self.0.load().seal(plaintext)
    }

    fn open(&self, token: &str) -> Result<Vec<u8>, OpenError> {
        self.0.load().open(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Secret;

    fn ring(active: u8, others: &[u8]) -> KeyRing {
        let secret =
            |first: u8| Secret::from_bytes(&(first..first + 32).collect::<Vec<_>>()).unwrap();
        let start = KeyRing::builder("a").active(secret(active));
        others.iter().fold(start, |ring, other| ring.staged(secret(*other))).build().unwrap()
    }

    #[test]
    fn a_rotation_takes_three_steps_and_no_fewer() {
        let shared = SharedKeyRing::new(ring(0, &[]));
        let first = shared.seal(b"x".to_vec()).unwrap();
        assert_eq!(shared.replace(ring(1, &[0])), Err(RotationError::NotStaged));
        assert_eq!(shared.replace(ring(1, &[])), Err(RotationError::NotStaged));
        shared.replace(ring(0, &[1])).unwrap();
        assert_eq!(shared.replace(ring(1, &[])), Err(RotationError::NotRetiring));
        assert_eq!(shared.open(&first).unwrap(), b"x", "what was refused changed nothing");
        shared.replace(ring(1, &[0])).unwrap();
        let second = shared.clone().seal(b"y".to_vec()).unwrap();
        assert_eq!(shared.open(&first).unwrap(), b"x");
        shared.replace(ring(1, &[])).unwrap();
        assert_eq!(shared.open(&first), Err(OpenError::UnknownKey));
        assert_eq!(shared.open(&second).unwrap(), b"y");
        assert!(RotationError::NotStaged.to_string().contains("`staged` on all replicas"));
    }

    #[test]
    fn a_secret_that_got_out_goes_at_once() {
        let shared = SharedKeyRing::new(ring(0, &[]));
        let token = shared.seal(b"x".to_vec()).unwrap();
        shared.replace_at_once(ring(5, &[]));
        assert_eq!(shared.open(&token), Err(OpenError::UnknownKey));
    }

    /// While it is replaced over and over, every token that was sealed is opened.
    #[test]
    fn nothing_is_refused_while_a_ring_is_replaced() {
        let shared = SharedKeyRing::new(ring(0, &[1]));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let token = shared.seal(b"x".to_vec()).unwrap();
                        assert_eq!(shared.open(&token).unwrap(), b"x");
                    }
                });
            }
            for n in 0..1_000 {
                shared.replace(if n % 2 == 0 { ring(1, &[0]) } else { ring(0, &[1]) }).unwrap();
            }
        });
    }
}
