//! Replacement of a key ring while it is in use.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::error::{OpenError, SealError};
use crate::ring::KeyRing;
use crate::seal::Seal;

/// A [`KeyRing`] that can be replaced without a restart.
///
/// Clones share the ring. Sealing and opening take no lock, and use either the old ring or the new
/// one.
///
/// ```
/// use mrtr_codec::{KeyRing, Secret, SharedKeyRing};
///
/// let (old, new) = (Secret::generate()?, Secret::generate()?);
/// let builder = || KeyRing::builder("https://book.example/mcp");
/// let shared = SharedKeyRing::new(builder().active(old.clone()).build()?);
/// // Three reloads, each of them on all replicas before the next:
/// shared.rotate(builder().active(old.clone()).staged(new.clone()).build()?)?;
/// shared.rotate(builder().active(new.clone()).retiring(old).build()?)?;
/// shared.rotate(builder().active(new).build()?)?; // after the last old token has expired
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SharedKeyRing(Arc<ArcSwap<KeyRing>>);

/// The cause of a rejected rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RotationError {
    /// The new active key is not in the current ring.
    #[error(
        "the new active key is not in the current key ring, so replicas that still have that ring \
         cannot open its tokens: first make the key `staged` on all replicas, then `active` with \
         the old one `retiring`, and remove the old one when its tokens have expired"
    )]
    NotStaged,
    /// The current active key is not in the new ring.
    #[error(
        "the current active key is not in the new key ring, so its tokens could no longer be \
         opened: keep it `retiring` until they have expired"
    )]
    NotRetiring,
}

impl SharedKeyRing {
    /// Creates a shared key ring that starts with `ring`.
    pub fn new(ring: KeyRing) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(ring)))
    }

    /// Replaces the ring if that is a safe step of a rotation.
    ///
    /// A step is safe if replicas with the old ring and replicas with the new ring can open each
    /// other's tokens: each ring contains the other's active key.
    ///
    /// # Errors
    ///
    /// [`RotationError`] if the step is not safe. The ring is then unchanged.
    pub fn rotate(&self, ring: KeyRing) -> Result<(), RotationError> {
        let ring = Arc::new(ring);
        let mut current = self.0.load();
        loop {
            if !current.contains(ring.active_id()) {
                return Err(RotationError::NotStaged);
            }
            if !ring.contains(current.active_id()) {
                return Err(RotationError::NotRetiring);
            }
            let found = self.0.compare_and_swap(&*current, Arc::clone(&ring));
            if Arc::ptr_eq(&found, &current) {
                return Ok(());
            }
            // Another thread replaced the ring after the checks, perhaps to revoke a key.
            current = found;
        }
    }

    /// Replaces the ring immediately and without checks, to revoke a leaked secret.
    ///
    /// Tokens of keys that are not in the new ring are rejected from now on, so their calls fail.
    pub fn replace_immediately(&self, ring: KeyRing) {
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
    fn rotation_requires_three_steps() {
        let shared = SharedKeyRing::new(ring(0, &[]));
        let first = shared.seal(b"x".to_vec()).unwrap();
        assert_eq!(shared.rotate(ring(1, &[0])), Err(RotationError::NotStaged));
        assert_eq!(shared.rotate(ring(1, &[])), Err(RotationError::NotStaged));
        shared.rotate(ring(0, &[1])).unwrap();
        assert_eq!(shared.rotate(ring(1, &[])), Err(RotationError::NotRetiring));
        assert_eq!(shared.open(&first).unwrap(), b"x", "a rejected rotation changed the ring");
        shared.rotate(ring(1, &[0])).unwrap();
        let second = shared.clone().seal(b"y".to_vec()).unwrap();
        assert_eq!(shared.open(&first).unwrap(), b"x");
        shared.rotate(ring(1, &[])).unwrap();
        assert_eq!(shared.open(&first), Err(OpenError::UnknownKey));
        assert_eq!(shared.open(&second).unwrap(), b"y");
        assert!(RotationError::NotStaged.to_string().contains("`staged` on all replicas"));
    }

    #[test]
    fn replace_immediately_revokes_a_key() {
        let shared = SharedKeyRing::new(ring(0, &[]));
        let token = shared.seal(b"x".to_vec()).unwrap();
        shared.replace_immediately(ring(5, &[]));
        assert_eq!(shared.open(&token), Err(OpenError::UnknownKey));
    }

    #[test]
    #[cfg_attr(target_family = "wasm", ignore = "there are no threads")]
    fn a_concurrent_rotation_does_not_undo_a_revocation() {
        for _ in 0..250 {
            let shared = SharedKeyRing::new(ring(0, &[1]));
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    // Until the revocation, each step is safe.
                    scope.spawn(|| (0..100).all(|_| shared.rotate(ring(0, &[1])).is_ok()));
                }
                scope.spawn(|| shared.replace_immediately(ring(5, &[])));
            });
            assert_eq!(shared.rotate(ring(0, &[1])), Err(RotationError::NotStaged));
        }
    }

    #[test]
    #[cfg_attr(target_family = "wasm", ignore = "there are no threads")]
    fn no_token_is_rejected_during_concurrent_rotations() {
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
                shared.rotate(if n % 2 == 0 { ring(1, &[0]) } else { ring(0, &[1]) }).unwrap();
            }
        });
    }
}
