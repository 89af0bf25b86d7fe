//! The parts of a client that do I/O.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use url::{Host, Url};

use super::error::{LoginError, driver};
use super::store::{MemoryStore, TokenStore};
use super::user_agent::{AssertionSource, UserAgent};
use crate::fetch::{AddressPolicy, Fetcher, HttpSettings};
use crate::identifier::{ResourceId, is_loopback};

/// The parts of a client that do I/O.
pub(super) struct Drivers {
    pub(super) store: Box<dyn TokenStore>,
    pub(super) user_agent: Option<Box<dyn UserAgent>>,
    pub(super) assertion: Option<Box<dyn AssertionSource>>,
    pub(super) identity_refresh_token: Option<Box<dyn AssertionSource>>,
    pub(super) http: HttpSettings,
    pub(super) allows_private: bool,
    pub(super) clock: fn() -> u64,
    fetchers: Mutex<Vec<(AddressPolicy, Arc<Fetcher>)>>,
}

impl Drivers {
    pub(super) fn new() -> Self {
        Self {
            store: Box::new(MemoryStore::new()),
            user_agent: None,
            assertion: None,
            identity_refresh_token: None,
            http: HttpSettings::default(),
            allows_private: false,
            clock: now,
            fetchers: Mutex::default(),
        }
    }

    pub(super) fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Returns the addresses that may be asked on behalf of a server: those like its own. A local
    /// server has local authorization servers in development.
    pub(super) fn address_policy(&self, server: &ResourceId) -> AddressPolicy {
        let url = Url::parse(server.as_str()).ok();
        let is_private = match url.as_ref().and_then(Url::host) {
            Some(Host::Ipv4(address)) => address.is_private(),
            _ => false,
        };
        AddressPolicy {
            loopback: url.as_ref().is_some_and(is_loopback),
            private: self.allows_private || is_private,
        }
    }

    pub(super) fn fetcher(&self, policy: AddressPolicy) -> Result<Arc<Fetcher>, LoginError> {
        let mut fetchers = self.fetchers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, fetcher)) = fetchers.iter().find(|(known, _)| *known == policy) {
            return Ok(Arc::clone(fetcher));
        }
        let fetcher = Fetcher::restricted(&self.http, policy)
            .map_err(|error| driver("the HTTP client", &error))?;
        let fetcher = Arc::new(fetcher);
        fetchers.push((policy, Arc::clone(&fetcher)));
        Ok(fetcher)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
