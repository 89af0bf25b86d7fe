//! A store in the keyring of the operating system.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use keyring_core::{CredentialStore, Entry, Error};
use mrtr_transport::BoxError;
use zeroize::Zeroizing;

use super::{FileStore, TokenStore};
use crate::client::session::StoredSession;
use crate::client::user_agent::DriverFuture;

/// Keeps sessions in the keyring of the operating system, such as the Keychain of macOS, the
/// Credential Manager of Windows or the Secret Service of Linux desktops.
///
/// The crate `keyring-core` defines keyrings, and other crates implement them. Choose the one for
/// each platform that the application runs on; this crate depends on none of them.
///
/// ```
/// use mrtr_auth::client::{KeyringStore, OAuthClient};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // In memory, for tests. On macOS, the store of the crate `apple-native-keyring-store`.
/// let keyring = keyring_core::mock::Store::new()?;
/// let store = KeyringStore::new("com.example.app", keyring).with_locks_in("/run/user/1000/app");
/// let client = OAuthClient::builder("Example").store(store).build()?;
/// # Ok(())
/// # }
/// ```
///
/// An entry has the name of the service, the key of the session as its user, and JSON as its
/// secret. The Credential Manager limits a secret to 2,560 bytes, and long tokens do not fit: they
/// are used until the process ends, with a warning in the log. Use a [`FileStore`] there.
#[derive(Clone)]
pub struct KeyringStore {
    service: String,
    keyring: Arc<CredentialStore>,
    locks: Option<FileStore>,
}

impl KeyringStore {
    /// Creates a store of entries for `service`, which names the application: others with the same
    /// name use the same sessions. It must not be empty.
    pub fn new(service: impl Into<String>, keyring: Arc<CredentialStore>) -> Self {
        Self { service: service.into(), keyring, locks: None }
    }

    /// Sets a directory of files without content, by which processes take turns in obtaining
    /// tokens: keyrings have no locks. It is created with the rights of a [`FileStore`]. Default:
    /// there are no other processes.
    #[must_use]
    pub fn with_locks_in(mut self, directory: impl Into<PathBuf>) -> Self {
        self.locks = Some(FileStore::new(directory));
        self
    }

    /// Calls a function with an entry, on a thread that may block: a keyring may ask the user to
    /// unlock it.
    fn with_entry<T: Send + 'static>(
        &self,
        key: &str,
        work: impl FnOnce(&Entry) -> Result<T, Error> + Send + 'static,
    ) -> DriverFuture<'static, T> {
        let (store, key) = (self.clone(), key.to_owned());
        Box::pin(async move {
            let work = move || {
                Entry::new_in_store(&store.keyring, &store.service, &key)
                    .and_then(|entry| work(&entry))
            };
            // An error may contain the secret. Its message does not.
            let failed = |error: Error| BoxError::from(error.to_string());
            tokio::task::spawn_blocking(work).await?.map_err(failed)
        })
    }
}

impl fmt::Debug for KeyringStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyringStore").field("service", &self.service).finish_non_exhaustive()
    }
}

impl TokenStore for KeyringStore {
    fn load<'a>(&'a self, server: &'a str) -> DriverFuture<'a, Option<StoredSession>> {
        self.with_entry(server, |entry| match entry.get_secret() {
            Ok(text) => {
                // An entry of another version, or a damaged one, costs a login.
                let session: Option<StoredSession> =
                    serde_json::from_slice(&Zeroizing::new(text)).ok();
                Ok(session.filter(StoredSession::is_readable))
            }
            Err(Error::NoEntry) => Ok(None),
            Err(error) => Err(error),
        })
    }

    fn save<'a>(&'a self, server: &'a str, session: &'a StoredSession) -> DriverFuture<'a, ()> {
        match serde_json::to_vec(session).map(Zeroizing::new) {
            Ok(text) => self.with_entry(server, move |entry| entry.set_secret(&text)),
            Err(error) => Box::pin(async { Err(error.into()) }),
        }
    }

    fn delete<'a>(&'a self, server: &'a str) -> DriverFuture<'a, ()> {
        self.with_entry(server, |entry| match entry.delete_credential() {
            Ok(()) | Err(Error::NoEntry) => Ok(()),
            Err(error) => Err(error),
        })
    }

    fn lock<'a>(&'a self, server: &'a str) -> DriverFuture<'a, Box<dyn Send>> {
        match &self.locks {
            Some(locks) => locks.lock(server),
            None => Box::pin(async { Ok(Box::new(()) as Box<dyn Send>) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use keyring_core::mock;

    use super::*;

    const SERVER: &str = "https://a.example/mcp";

    fn session(issuer: &str) -> StoredSession {
        StoredSession { bound_issuer: Some(issuer.to_owned()), ..StoredSession::default() }
    }

    #[tokio::test]
    async fn sessions_are_kept_by_service_and_server() {
        let keyring = mock::Store::new().unwrap();
        let store = KeyringStore::new("app", keyring.clone());
        assert_eq!(store.load(SERVER).await.unwrap(), None);
        store.delete(SERVER).await.unwrap();
        for issuer in ["https://one.example", "https://two.example"] {
            store.save(SERVER, &session(issuer)).await.unwrap();
            assert_eq!(store.load(SERVER).await.unwrap(), Some(session(issuer)));
        }
        assert_eq!(store.load("https://b.example/mcp").await.unwrap(), None);
        let other = KeyringStore::new("other", keyring);
        assert_eq!(other.load(SERVER).await.unwrap(), None);
        store.delete(SERVER).await.unwrap();
        assert_eq!(store.load(SERVER).await.unwrap(), None);
    }

    #[tokio::test]
    async fn damaged_entries_and_those_of_other_versions_are_ignored() {
        let keyring: Arc<CredentialStore> = mock::Store::new().unwrap();
        let store = KeyringStore::new("app", Arc::clone(&keyring));
        let entry = Entry::new_in_store(&keyring, "app", SERVER).unwrap();
        for text in ["", "{", r#"{"format":2}"#] {
            entry.set_secret(text.as_bytes()).unwrap();
            assert_eq!(store.load(SERVER).await.unwrap(), None, "{text}");
        }
    }

    #[tokio::test]
    async fn errors_of_the_keyring_are_reported_without_its_secrets() {
        let keyring: Arc<CredentialStore> = mock::Store::new().unwrap();
        let store = KeyringStore::new("app", Arc::clone(&keyring));
        let entry = Entry::new_in_store(&keyring, "app", SERVER).unwrap();
        let fail = |error| {
            entry.as_any().downcast_ref::<mock::Cred>().unwrap().set_error(error);
        };
        fail(Error::BadEncoding(b"hunter2".to_vec()));
        let error = store.load(SERVER).await.unwrap_err();
        assert!(!format!("{error:?}{error}").contains("hunter2"), "{error:?}");
        fail(Error::TooLong("secret".to_owned(), 2560));
        let error = store.save(SERVER, &session("https://one.example")).await.unwrap_err();
        assert!(error.to_string().contains("2560"), "{error}");
        fail(Error::NotSupportedByStore("deletion".to_owned()));
        store.delete(SERVER).await.unwrap_err();
        assert!(!format!("{store:?}").contains("hunter2"));
    }

    #[tokio::test]
    async fn locks_exclude_each_other() {
        let directory = std::env::temp_dir().join(format!("mrtr-keyring-{}", std::process::id()));
        let store =
            || KeyringStore::new("app", mock::Store::new().unwrap()).with_locks_in(&directory);
        let (one, two) = (store(), store());
        let guard = one.lock(SERVER).await.unwrap();
        let mut waiting = two.lock(SERVER);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(guard);
        waiting.await.unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
