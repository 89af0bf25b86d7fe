//! A store of files that only their owner can read.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::TokenStore;
use crate::client::random::Seed;
use crate::client::session::StoredSession;
use crate::client::user_agent::DriverFuture;
use crate::metadata::MAX_DOCUMENT;

/// The pauses between two attempts to lock a session.
const MIN_LOCK_PAUSE: Duration = Duration::from_millis(5);
const MAX_LOCK_PAUSE: Duration = Duration::from_millis(250);
/// The longest time that a lock is waited for: a login of another process may take 5 minutes.
const LOCK_TIMEOUT: Duration = Duration::from_mins(6);

/// Keeps each session in a file of a directory, which several processes can share.
///
/// A file is replaced as a whole, so a crash leaves the former one. On Unix, the directory has the
/// mode 0700 and the files 0600, and others are refused. On other systems,
/// choose a directory that others cannot read.
#[derive(Debug, Clone)]
pub struct FileStore {
    directory: PathBuf,
}

impl FileStore {
    /// Creates a store in `directory`, which is created at the first write.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// Creates a store in the directory of the user for an application's state:
    /// `$XDG_STATE_HOME/APPLICATION/sessions`, by default `~/.local/state/APPLICATION/sessions`, or
    /// `%LOCALAPPDATA%\APPLICATION\sessions`. `None` if no variable of these is an absolute path.
    pub fn for_application(application: &str) -> Option<Self> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
            .or_else(|| absolute("LOCALAPPDATA"))?;
        Some(Self::new(state.join(application).join("sessions")))
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, server: &str, extension: &str) -> PathBuf {
        let digest = Sha256::digest(server);
        let name = BASE64_URL_SAFE_NO_PAD.encode(digest);
        self.directory.join(format!("{name}.{extension}"))
    }

    /// Creates the directory. Fails if others can write to it or read it.
    fn create_directory(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&self.directory)?;
        check_mode(&fs::metadata(&self.directory)?, &self.directory)
    }

    fn create(path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path)
    }

    fn open_for_writing(path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path)
    }
}

/// Fails if others than the owner have rights to a file or a directory.
#[cfg(unix)]
fn check_mode(metadata: &fs::Metadata, path: &Path) -> io::Result<()> {
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions());
    let others = mode & 0o077;
    if others == 0 {
        return Ok(());
    }
    let message = format!("{} is accessible to others (mode {:o})", path.display(), mode & 0o777);
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

#[cfg(not(unix))]
fn check_mode(_: &fs::Metadata, _: &Path) -> io::Result<()> {
    Ok(())
}

fn load(path: &Path) -> io::Result<Option<StoredSession>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    check_mode(&file.metadata()?, path)?;
    let mut text = zeroize::Zeroizing::new(Vec::new());
    file.take(MAX_DOCUMENT as u64).read_to_end(&mut text)?;
    // A file of another version, or a damaged one, costs a login.
    let session: Option<StoredSession> = serde_json::from_slice(&text).ok();
    Ok(session.filter(StoredSession::is_readable))
}

impl TokenStore for FileStore {
    fn load<'a>(&'a self, server: &'a str) -> DriverFuture<'a, Option<StoredSession>> {
        let path = self.path(server, "json");
        Box::pin(async move { blocking(move || load(&path)).await })
    }

    fn save<'a>(&'a self, server: &'a str, session: &'a StoredSession) -> DriverFuture<'a, ()> {
        let (store, path, session) = (self.clone(), self.path(server, "json"), session.clone());
        // A name that others cannot know, for a file that does not exist.
        let new = Seed::random().map(|seed| self.path(server, &seed.derive("file")));
        Box::pin(async move {
            blocking(move || {
                store.create_directory()?;
                let text = zeroize::Zeroizing::new(serde_json::to_vec(&session)?);
                if text.len() > MAX_DOCUMENT {
                    return Err(io::Error::other("the session is too long to be stored"));
                }
                let new = new.map_err(io::Error::other)?;
                let mut file = Self::create(&new)?;
                let written = file.write_all(&text).and_then(|()| file.sync_all());
                written.and_then(|()| fs::rename(&new, &path)).inspect_err(|_| {
                    let _ = fs::remove_file(&new);
                })
            })
            .await
        })
    }

    fn delete<'a>(&'a self, server: &'a str) -> DriverFuture<'a, ()> {
        let path = self.path(server, "json");
        Box::pin(async move {
            blocking(move || match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            })
            .await
        })
    }

    fn lock<'a>(&'a self, server: &'a str) -> DriverFuture<'a, Box<dyn Send>> {
        let (store, path) = (self.clone(), self.path(server, "lock"));
        Box::pin(async move {
            let file = blocking(move || {
                store.create_directory()?;
                Self::open_for_writing(&path)
            });
            let (file, mut pause) = (file.await?, MIN_LOCK_PAUSE);
            let locked = async {
                // A blocking wait for the lock would keep the runtime from ending.
                loop {
                    match file.try_lock() {
                        Ok(()) => return Ok(()),
                        Err(TryLockError::WouldBlock) => tokio::time::sleep(pause).await,
                        Err(TryLockError::Error(error)) => return Err(error),
                    }
                    pause = MAX_LOCK_PAUSE.min(pause * 2);
                }
            };
            match tokio::time::timeout(LOCK_TIMEOUT, locked).await {
                Ok(locked) => locked?,
                Err(_) => return Err("another process holds the lock of the session".into()),
            }
            // The lock ends when the file is closed.
            Ok(Box::new(file) as Box<dyn Send>)
        })
    }
}

/// Runs file operations on the threads for blocking work.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, mrtr_transport::BoxError> {
    Ok(tokio::task::spawn_blocking(work).await??)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let name = format!("mrtr-auth-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[tokio::test]
    async fn session_is_kept_and_deleted() {
        let directory = Directory::new("kept");
        let store = FileStore::new(directory.0.join("a/b"));
        let server = "https://a.example/mcp";
        assert_eq!(store.load(server).await.unwrap(), None);
        let bound_issuer = Some("https://login.example".to_owned());
        let session = StoredSession { bound_issuer, ..StoredSession::default() };
        store.save(server, &session).await.unwrap();
        store.save(server, &session).await.unwrap();
        assert_eq!(store.load(server).await.unwrap(), Some(session));
        assert_eq!(store.load("https://b.example/mcp").await.unwrap(), None);
        store.delete(server).await.unwrap();
        store.delete(server).await.unwrap();
        assert_eq!(store.load(server).await.unwrap(), None);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = Directory::new("mode");
        let store = FileStore::new(&directory.0);
        store.save("a", &StoredSession::default()).await.unwrap();
        let path = store.path("a", "json");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&directory.0)), (0o600, 0o700));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = store.load("a").await.unwrap_err().to_string();
        assert!(error.contains("is accessible to others (mode 640)"), "{error}");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn directory_that_others_can_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = Directory::new("writable");
        fs::create_dir(&directory.0).unwrap();
        fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o777)).unwrap();
        let store = FileStore::new(&directory.0);
        store.save("a", &StoredSession::default()).await.unwrap_err();
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn damaged_file_is_no_session() {
        let directory = Directory::new("damaged");
        let store = FileStore::new(&directory.0);
        store.save("a", &StoredSession::default()).await.unwrap();
        for text in ["", "{", r#"{"format":2}"#] {
            fs::write(store.path("a", "json"), text).unwrap();
            assert_eq!(store.load("a").await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn lock_is_exclusive_until_it_is_dropped() {
        let directory = Directory::new("lock");
        let (one, other) = (FileStore::new(&directory.0), FileStore::new(&directory.0));
        let first = one.lock("a").await.unwrap();
        let mut second = other.lock("a");
        assert!(futures_util::poll!(&mut second).is_pending());
        other.lock("b").await.unwrap();
        drop(first);
        second.await.unwrap();
    }
}
