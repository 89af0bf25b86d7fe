//! Key rings as text, where operators keep them: a file, or an environment variable, with secrets in clear or
//! wrapped by a KMS.

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::key::{Secret, SecretError};
use crate::ring::{KeyRing, KeyRingBuilder, RingError};

/// Unwraps secrets: a KMS, an HSM, a vault. It is asked once for each key when a ring is loaded; sealing and opening
/// take what came of it, and ask nobody.
///
/// This is envelope encryption: what stands beside the service is of no use without the KMS, and the KMS sees no
/// token. Where not even a process may hold a key, implement [`Seal`](crate::Seal) instead.
pub trait Kms: Sync {
    /// Why it did not.
    type Error: Into<Box<dyn std::error::Error + Send + Sync>>;

    /// Unwraps a secret, which is as it was written in the ring's text: base64, say, or any text without line breaks, `;`
    /// and `#`.
    ///
    /// Dropping the future gives up; nothing is changed by that. A deadline is the caller's or the
    /// implementation's: [`KeyRing::from_wrapped`] has none.
    ///
    /// # Errors
    ///
    /// If it cannot be unwrapped, or is no [`Secret`].
    fn unwrap_secret(
        &self,
        wrapped: &str,
    ) -> impl Future<Output = Result<Secret, Self::Error>> + Send;
}

/// Why no ring could be loaded. It never holds what was read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The environment variable is not set, or is no text.
    #[error(
        "the environment variable {0} is not set: make a key with `cargo run --example keygen`"
    )]
    NoVariable(String),
    /// The file cannot be read.
    #[error("{path} cannot be read")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line is neither empty nor a comment, and does not begin with the state of a key.
    #[error(
        "line {0}: a line is `active`, `staged` or `retiring`, a blank and a secret in base64url"
    )]
    Line(usize),
    /// A secret is none.
    #[error("line {line}: {source}")]
    Secret {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        source: SecretError,
    },
    /// A secret could not be unwrapped.
    #[error("line {line}: the secret was not unwrapped")]
    Unwrap {
        /// Counted from 1.
        line: usize,
        /// What the KMS said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The keys make no ring.
    #[error(transparent)]
    Ring(#[from] RingError),
}

impl KeyRing {
    /// Reads a ring: one key a line (or between semicolons), as `active`, `staged` or `retiring`, a blank, and the
    /// secret as [`Secret::to_base64url`] gives it. Empty lines, and what follows a `#`, are passed over.
    ///
    /// ```
    /// use mrtr_codec::{KeyRing, Secret};
    ///
    /// let line = format!("active {}  # since the summer", *Secret::generate()?.to_base64url());
    /// let ring = KeyRing::from_text("https://service.example/mcp", &line)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LoadError`], with the number of the line.
    pub fn from_text(audience: impl Into<String>, text: &str) -> Result<Self, LoadError> {
        let mut ring = Self::builder(audience);
        for line in lines(text) {
            let Line { number, state, secret } = line?;
            let wrong = |source| LoadError::Secret { line: number, source };
            ring = state(ring, Secret::from_base64url(secret).map_err(wrong)?);
        }
        Ok(ring.build()?)
    }

    /// Reads a ring whose secrets are wrapped: see [`KeyRing::from_text`] for the lines, where the secret is what
    /// `kms` unwraps. Secrets are unwrapped one after the other; cancelled, it leaves nothing behind.
    ///
    /// # Errors
    ///
    /// [`LoadError`], with the number of the line.
    pub async fn from_wrapped<U: Kms>(
        audience: impl Into<String>,
        text: &str,
        kms: &U,
    ) -> Result<Self, LoadError> {
        let mut ring = Self::builder(audience);
        for line in lines(text) {
            let Line { number, state, secret } = line?;
            let failed = |e: U::Error| LoadError::Unwrap { line: number, source: e.into() };
            ring = state(ring, kms.unwrap_secret(secret).await.map_err(failed)?);
        }
        Ok(ring.build()?)
    }

    /// Reads a ring from an environment variable: see [`KeyRing::from_text`].
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    pub fn from_env(audience: impl Into<String>, variable: &str) -> Result<Self, LoadError> {
        let text = std::env::var(variable).map(Zeroizing::new);
        Self::from_text(audience, &text.map_err(|_| LoadError::NoVariable(variable.to_owned()))?)
    }

    /// Reads a ring from a file: see [`KeyRing::from_text`].
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    pub fn from_file(
        audience: impl Into<String>,
        path: impl AsRef<Path>,
    ) -> Result<Self, LoadError> {
        let path = path.as_ref();
        let failed = |source| LoadError::File { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map(Zeroizing::new).map_err(failed)?;
        Self::from_text(audience, &text)
    }
}

/// One key of a ring's text.
struct Line<'t> {
    number: usize,
    /// What adds it to a ring.
    state: fn(KeyRingBuilder, Secret) -> KeyRingBuilder,
    secret: &'t str,
}

fn lines(text: &str) -> impl Iterator<Item = Result<Line<'_>, LoadError>> {
    text.split(['\n', ';']).zip(1..).filter_map(|(line, number)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        (!line.is_empty()).then(|| {
            let (state, secret) =
                line.split_once(char::is_whitespace).ok_or(LoadError::Line(number))?;
            let state = match state {
                "active" => KeyRingBuilder::active,
                "staged" => KeyRingBuilder::staged,
                "retiring" => KeyRingBuilder::retiring,
                _ => return Err(LoadError::Line(number)),
            };
            Ok(Line { number, state, secret: secret.trim_start() })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::Seal as _;

    fn line(state: &str, first: u8) -> String {
        let secret = Secret::from_bytes(&(first..first + 32).collect::<Vec<_>>()).unwrap();
        format!("{state} {}", *secret.to_base64url())
    }

    #[test]
    fn a_ring_is_read_from_text() {
        let old = KeyRing::from_text("a", &line("active", 0)).unwrap();
        for text in [
            format!("# ours\n\n{}\r\n  {}  # until June\n", line("active", 1), line("retiring", 0)),
            format!("{};{}", line("retiring", 0), line("active", 1)),
        ] {
            let ring = KeyRing::from_text("a", &text).unwrap();
            assert_eq!(ring.open(&old.seal(b"x".to_vec()).unwrap()).unwrap(), b"x");
            assert!(old.open(&ring.seal(b"x".to_vec()).unwrap()).is_err(), "the other key seals");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_without_the_secret() {
        let secret = line("active", 0).split_off(7);
        for (text, part) in [
            (String::new(), "exactly one active key, not 0"),
            (
                format!("{}\n{}", line("active", 0), line("active", 1)),
                "exactly one active key, not 2",
            ),
            (format!("{}\n{}", line("active", 0), line("staged", 0)), "twice"),
            (format!("\n\n{secret}"), "line 3: a line is"),
            (format!("old {secret}"), "line 1: a line is"),
            ("active short".to_owned(), "line 1: the secret"),
            (format!("# x\nactive {secret}!"), "line 2: the secret is not base64url"),
        ] {
            let error = KeyRing::from_text("a", &text).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains(&secret), "{error}");
        }
    }

    /// A KMS that keeps its word at once.
    struct Reversing;

    impl Kms for Reversing {
        type Error = SecretError;

        async fn unwrap_secret(&self, wrapped: &str) -> Result<Secret, SecretError> {
            Secret::from_base64url(&wrapped.chars().rev().collect::<String>())
        }
    }

    fn from_wrapped(text: &str) -> Result<KeyRing, LoadError> {
        let ring = std::pin::pin!(KeyRing::from_wrapped("a", text, &Reversing));
        match ring.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(ring) => ring,
            std::task::Poll::Pending => panic!("it waits for nothing"),
        }
    }

    #[test]
    fn wrapped_secrets_are_unwrapped_when_a_ring_is_loaded() {
        let wrapped = |state: &str, first: u8| {
            let secret = line("", first);
            format!("{state} {}", secret.trim().chars().rev().collect::<String>())
        };
        let text = format!("{}\n# the last one\n{}", wrapped("active", 1), wrapped("retiring", 0));
        let ring = from_wrapped(&text).unwrap();
        let old = KeyRing::from_text("a", &line("active", 0)).unwrap();
        assert_eq!(ring.open(&old.seal(b"x".to_vec()).unwrap()).unwrap(), b"x");

        let error = from_wrapped(&format!("{text}\nstaged nonsense")).unwrap_err();
        assert_eq!(error.to_string(), "line 4: the secret was not unwrapped");
        assert!(std::error::Error::source(&error).is_some());
        assert!(matches!(from_wrapped("active"), Err(LoadError::Line(1))));
    }

    #[test]
    fn files_and_variables_that_are_not_there_are_named() {
        let error = KeyRing::from_file("a", "/no/such/file").unwrap_err();
        assert!(error.to_string().contains("/no/such/file"), "{error}");
        let error = KeyRing::from_env("a", "MRTR_NO_SUCH_VARIABLE").unwrap_err();
        assert!(error.to_string().contains("MRTR_NO_SUCH_VARIABLE"), "{error}");
        let path = std::env::temp_dir().join(format!("mrtr-ring-{}", std::process::id()));
        std::fs::write(&path, line("active", 0)).unwrap();
        let ring = KeyRing::from_file("a", &path);
        let _ = std::fs::remove_file(&path);
        ring.unwrap();
    }
}
