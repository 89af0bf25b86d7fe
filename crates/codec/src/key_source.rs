//! Key rings from configuration text.
//!
//! The text is in a file or an environment variable. Its secrets are in plain text or wrapped by a
//! KMS.

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::key::{Secret, SecretError};
use crate::ring::{KeyRing, KeyRingBuilder, RingError};

/// A key management service that unwraps secrets, such as a cloud KMS, an HSM or a vault.
///
/// [`KeyRing::from_wrapped`] calls it once for each key. Sealing and opening do not call it: this
/// is envelope encryption. The configuration is useless without the KMS, and the KMS sees no token.
/// If keys must not be in the memory of the process at all, implement [`Seal`](crate::Seal)
/// instead.
///
/// ```
/// use mrtr_codec::{Kms, KeyRing, LoadError, Secret, SecretError};
///
/// struct CloudKms {
///     key_name: String,
/// }
///
/// impl Kms for CloudKms {
///     type Error = SecretError;
///
///     async fn unwrap_secret(&self, wrapped: &str) -> Result<Secret, SecretError> {
///         // Send `wrapped` and `self.key_name` to the service; it returns the secret.
/// #       let decrypted = wrapped;
///         Secret::from_base64url(decrypted)
///     }
/// }
///
/// async fn load(config: &str) -> Result<KeyRing, LoadError> {
///     let kms = CloudKms { key_name: "mrtr".to_owned() };
///     KeyRing::from_wrapped("https://book.example/mcp", config, &kms).await
/// }
/// ```
pub trait Kms: Sync {
    /// The error of a failed unwrapping.
    type Error: Into<Box<dyn std::error::Error + Send + Sync>>;

    /// Unwraps a secret.
    ///
    /// `wrapped` is the text of the secret in the configuration: base64, for example, or any text
    /// without line breaks, `;` and `#`.
    ///
    /// Dropping the future cancels the request. [`KeyRing::from_wrapped`] sets no timeout; the
    /// implementation or its caller may.
    ///
    /// # Errors
    ///
    /// If the KMS cannot unwrap the secret, or if the result is not a valid [`Secret`].
    fn unwrap_secret(
        &self,
        wrapped: &str,
    ) -> impl Future<Output = Result<Secret, Self::Error>> + Send;
}

/// The cause of a failure to load a key ring. It never contains the text that was read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The environment variable is not set, or is not valid UTF-8.
    #[error(
        "environment variable {0} is not set or not valid UTF-8: generate a key with `mrtr keygen`"
    )]
    MissingVariable(String),
    /// The file cannot be read.
    #[error("cannot read key file {path}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A line is not a comment, and does not consist of the state of a key and a secret. The field
    /// is its number, counted from 1.
    #[error("line {0}: expected `active`, `staged` or `retiring`, a space and a secret")]
    InvalidLine(usize),
    /// A comment contains a semicolon, so what follows could be meant as a key. The field is the
    /// number of the line, counted from 1.
    #[error("line {0}: a comment must not contain a semicolon")]
    InvalidComment(usize),
    /// A secret is invalid.
    #[error("line {line}: {source}")]
    Secret {
        /// The number of the line, counted from 1.
        line: usize,
        /// The cause.
        source: SecretError,
    },
    /// The KMS could not unwrap a secret.
    #[error("line {line}: the KMS could not unwrap the secret")]
    Unwrap {
        /// The number of the line, counted from 1.
        line: usize,
        /// The error of the KMS.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The keys are not a valid ring.
    #[error(transparent)]
    Ring(#[from] RingError),
}

impl KeyRing {
    /// Reads a key ring from text.
    ///
    /// Each line (or part between semicolons) is one key: `active`, `staged` or `retiring`, white
    /// space, and a secret as written by [`Secret::to_base64url`]. Empty lines are ignored, and so
    /// are comments: `#` and the rest of its line, which must not contain a semicolon. `mrtr
    /// keygen` prints a line with a new secret.
    ///
    /// ```
    /// use mrtr_codec::{KeyRing, Secret};
    ///
    /// let line = format!("active {}  # since June", *Secret::generate()?.to_base64url());
    /// let ring = KeyRing::from_text("https://book.example/mcp", &line)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LoadError::InvalidLine`], [`LoadError::InvalidComment`] and [`LoadError::Secret`] with the
    /// number of the line, and [`LoadError::Ring`] if the keys are not a valid ring.
    pub fn from_text(audience: impl Into<String>, text: &str) -> Result<Self, LoadError> {
        let mut ring = Self::builder(audience);
        for line in lines(text) {
            let Line { number, add, secret } = line?;
            let secret = Secret::from_base64url(secret)
                .map_err(|source| LoadError::Secret { line: number, source })?;
            ring = add(ring, secret);
        }
        Ok(ring.build()?)
    }

    /// Reads a key ring whose secrets are wrapped by a KMS.
    ///
    /// The text has the form of [`KeyRing::from_text`], with wrapped secrets. They are unwrapped
    /// one after the other. Dropping the future cancels the load and has no other effect.
    ///
    /// # Errors
    ///
    /// [`LoadError::Unwrap`] with the number of the line, and the errors of [`KeyRing::from_text`].
    pub async fn from_wrapped<K: Kms>(
        audience: impl Into<String>,
        text: &str,
        kms: &K,
    ) -> Result<Self, LoadError> {
        let mut ring = Self::builder(audience);
        for line in lines(text) {
            let Line { number, add, secret } = line?;
            let secret = kms
                .unwrap_secret(secret)
                .await
                .map_err(|error| LoadError::Unwrap { line: number, source: error.into() })?;
            ring = add(ring, secret);
        }
        Ok(ring.build()?)
    }

    /// Reads a key ring from an environment variable, in the form of [`KeyRing::from_text`].
    ///
    /// ```no_run
    /// use mrtr_codec::KeyRing;
    ///
    /// let ring = KeyRing::from_env("https://book.example/mcp", "MRTR_KEYS")?;
    /// # Ok::<(), mrtr_codec::LoadError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LoadError::MissingVariable`] if the variable is not set or not valid UTF-8, and the errors
    /// of [`KeyRing::from_text`].
    pub fn from_env(audience: impl Into<String>, variable: &str) -> Result<Self, LoadError> {
        let text = std::env::var(variable)
            .map(Zeroizing::new)
            .map_err(|_| LoadError::MissingVariable(variable.to_owned()))?;
        Self::from_text(audience, &text)
    }

    /// Reads a key ring from a file, in the form of [`KeyRing::from_text`].
    ///
    /// ```no_run
    /// use mrtr_codec::KeyRing;
    ///
    /// let ring = KeyRing::from_file("https://book.example/mcp", "/run/secrets/mrtr-keys")?;
    /// # Ok::<(), mrtr_codec::LoadError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LoadError::File`] if the file cannot be read, and the errors of [`KeyRing::from_text`].
    pub fn from_file(
        audience: impl Into<String>,
        path: impl AsRef<Path>,
    ) -> Result<Self, LoadError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map(Zeroizing::new)
            .map_err(|source| LoadError::File { path: path.to_owned(), source })?;
        Self::from_text(audience, &text)
    }
}

/// A line of a key ring's text.
struct Line<'t> {
    number: usize,
    /// Adds the secret to a builder in the state that the line names.
    add: fn(KeyRingBuilder, Secret) -> KeyRingBuilder,
    secret: &'t str,
}

/// Splits text into lines, or parts of lines, without comments and empty ones.
fn lines(text: &str) -> impl Iterator<Item = Result<Line<'_>, LoadError>> {
    text.split('\n').zip(1..).flat_map(|(line, number)| {
        let (keys, comment) = line.split_once('#').unwrap_or((line, ""));
        // What follows a semicolon in a comment could be a key, or not.
        let ambiguous = comment.contains(';').then_some(Err(LoadError::InvalidComment(number)));
        let keys = keys.split(';').map(str::trim).filter(|key| !key.is_empty());
        keys.map(move |key| parse_line(key, number)).chain(ambiguous)
    })
}

/// Parses a line that is not empty and has no comment.
fn parse_line(line: &str, number: usize) -> Result<Line<'_>, LoadError> {
    let (state, secret) =
        line.split_once(char::is_whitespace).ok_or(LoadError::InvalidLine(number))?;
    let add = match state {
        "active" => KeyRingBuilder::active,
        "staged" => KeyRingBuilder::staged,
        "retiring" => KeyRingBuilder::retiring,
        _ => return Err(LoadError::InvalidLine(number)),
    };
    Ok(Line { number, add, secret: secret.trim_start() })
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
    fn from_text_reads_lines_and_ignores_comments() {
        let old = KeyRing::from_text("a", &line("active", 0)).unwrap();
        for text in [
            format!(
                "# production\n\n{}\r\n  {}  # until June\n",
                line("active", 1),
                line("retiring", 0)
            ),
            format!("{};{}", line("retiring", 0), line("active", 1)),
        ] {
            let ring = KeyRing::from_text("a", &text).unwrap();
            assert_eq!(ring.open(&old.seal(b"x".to_vec()).unwrap()).unwrap(), b"x");
            assert!(
                old.open(&ring.seal(b"x".to_vec()).unwrap()).is_err(),
                "the retiring key sealed"
            );
        }
    }

    #[test]
    fn load_errors_name_the_line_but_not_the_secret() {
        let secret = line("active", 0).split_off(7);
        for (text, part) in [
            (String::new(), "exactly one active key, not 0"),
            (
                format!("{}\n{}", line("active", 0), line("active", 1)),
                "exactly one active key, not 2",
            ),
            (format!("{}\n{}", line("active", 0), line("staged", 0)), "a secret occurs twice"),
            (format!("\n\n{secret}"), "line 3: expected `active`"),
            (format!("old {secret}"), "line 1: expected `active`"),
            (format!("active {secret}\n# active A; {}", line("retiring", 1)), "line 2: a comment"),
            (format!("active {secret} # June; July"), "line 1: a comment"),
            ("active short".to_owned(), "line 1: the secret"),
            (format!("# x\nactive {secret}!"), "line 2: the secret is not base64url"),
        ] {
            let error = KeyRing::from_text("a", &text).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains(&secret), "{error}");
        }
    }

    /// A KMS that wraps a secret by reversing its text, and answers immediately.
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
            std::task::Poll::Pending => {
                panic!("the load is pending without an outstanding request")
            }
        }
    }

    #[test]
    fn from_wrapped_unwraps_each_secret() {
        let wrapped = |state: &str, first: u8| {
            let secret = line("", first);
            format!("{state} {}", secret.trim().chars().rev().collect::<String>())
        };
        let text = format!("{}\n# previous key\n{}", wrapped("active", 1), wrapped("retiring", 0));
        let ring = from_wrapped(&text).unwrap();
        let old = KeyRing::from_text("a", &line("active", 0)).unwrap();
        assert_eq!(ring.open(&old.seal(b"x".to_vec()).unwrap()).unwrap(), b"x");

        let error = from_wrapped(&format!("{text}\nstaged nonsense")).unwrap_err();
        assert_eq!(error.to_string(), "line 4: the KMS could not unwrap the secret");
        assert!(std::error::Error::source(&error).is_some());
        assert!(matches!(from_wrapped("active"), Err(LoadError::InvalidLine(1))));
    }

    #[test]
    #[cfg_attr(target_family = "wasm", ignore = "there are no files")]
    fn missing_files_and_variables_are_named() {
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
