//! The proofs that were used (RFC 9449, section 11.1).

use std::collections::HashSet;
use std::mem;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest;

/// The largest difference between the time of a proof and that of this server, in seconds.
pub(super) const MAX_AGE: u64 = 5 * 60;

/// The time for which a proof may be accepted, in seconds: its time may be as far in the future as
/// in the past.
const WINDOW: u64 = 2 * MAX_AGE + 1;

/// The largest number of proofs in a generation.
const CAPACITY: usize = 100_000;

/// The proofs of at least the last ten minutes, in two generations. They are replaced one after the
/// other, so that no scan is needed. If there are more than fit, then the oldest are forgotten.
pub(super) struct ReplayCache {
    generations: Mutex<Generations>,
    capacity: usize,
}

#[derive(Default)]
struct Generations {
    young: HashSet<[u8; 32]>,
    old: HashSet<[u8; 32]>,
    started: u64,
}

impl ReplayCache {
    pub(super) fn new() -> Self {
        Self::with_capacity(CAPACITY)
    }

    fn with_capacity(capacity: usize) -> Self {
        Self { generations: Mutex::default(), capacity }
    }

    /// Inserts the proof `jti` of a key. Returns false if it was used before.
    pub(super) fn insert(&self, thumbprint: &str, jti: &str, now: u64) -> bool {
        // The length of a thumbprint is fixed, so different pairs have different digests.
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(thumbprint.as_bytes());
        context.update(jti.as_bytes());
        let mut proof = [0; 32];
        proof.copy_from_slice(context.finish().as_ref());

        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = now >= generations.started.saturating_add(WINDOW);
        if is_over || generations.young.len() >= self.capacity {
            if !is_over {
                tracing::debug!(target: "mrtr::auth", "the oldest DPoP proofs are forgotten");
            }
            generations.old = mem::take(&mut generations.young);
            generations.started = now;
        }
        !generations.old.contains(&proof) && generations.young.insert(proof)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_is_accepted_once_in_its_window() {
        let cache = ReplayCache::new();
        assert!(cache.insert("key", "a", 1000));
        for now in [1000, 1000 + WINDOW - 1, 1000 + WINDOW] {
            assert!(!cache.insert("key", "a", now), "{now}");
        }
        assert!(cache.insert("kez", "a", 1000) && cache.insert("key", "b", 1000));
    }

    /// A proof whose time is five minutes ahead is acceptable for ten minutes.
    #[test]
    fn proof_is_remembered_for_ten_minutes_in_any_generation() {
        for inserted in (1000..1700).step_by(50) {
            let cache = ReplayCache::new();
            for now in (1000..=inserted + 600).step_by(50) {
                // Other proofs let the generations change.
                assert!(cache.insert("key", &now.to_string(), now));
                if now >= inserted {
                    assert_eq!(cache.insert("key", "a", now), now == inserted, "{now}");
                }
            }
        }
    }

    #[test]
    fn size_is_bounded() {
        let cache = ReplayCache::with_capacity(10);
        for number in 0..1000 {
            assert!(cache.insert("key", &number.to_string(), 1000));
            let generations = cache.generations.lock().unwrap();
            assert!(generations.young.len() + generations.old.len() <= 20);
        }
        assert!(!cache.insert("key", "999", 1000));
    }
}
