//! The user's browser.

use std::future::Future;
use std::pin::Pin;

use mrtr_transport::BoxError;

use super::authorization::AuthorizationPage;
use super::secret::Secret;

/// The future of a method of a replaceable part of a client: a [`UserAgent`], a
/// [`TokenStore`](super::TokenStore), or an [`AssertionSource`].
pub type DriverFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send + 'a>>;

/// Shows pages of authorization servers to the user, and receives the callbacks.
///
/// [`Loopback`](super::Loopback) is one for programs on the user's device.
pub trait UserAgent: Send + Sync + 'static {
    /// Prepares to receive a callback, before the page is known: its redirect URI may have to be
    /// registered. `preferred` is the redirect URI that was registered last. With another one, the
    /// client is registered again.
    ///
    /// # Errors
    ///
    /// If no callback can be received. The login fails.
    fn prepare<'a>(
        &'a self,
        preferred: Option<&'a str>,
    ) -> DriverFuture<'a, Box<dyn CallbackReceiver>>;
}

/// Receives one callback.
pub trait CallbackReceiver: Send {
    /// Returns the redirect URI: an `https` URL, an `http` URL on the loopback interface, or one
    /// with a scheme of the application, which has a period (`com.example.app:/callback`; RFC
    /// 8252, section 7). With another one, the login fails.
    fn redirect_uri(&self) -> &str;

    /// Shows a page to the user, and returns the URL to which the authorization server redirects
    /// afterwards.
    ///
    /// Get the user's consent before you open a page: the server has chosen its URL. Never pass it
    /// to a shell.
    ///
    /// Return only a callback for which [`AuthorizationPage::is_answered_by`] is true. Ignore
    /// others and keep waiting: another program or a web page may have sent them. A wrong callback
    /// ends the login.
    ///
    /// # Errors
    ///
    /// If the user declines, or does not return. The login fails.
    fn authorize(self: Box<Self>, page: AuthorizationPage) -> DriverFuture<'static, String>;
}

/// Obtains assertions: a token of the platform on which the client runs, or of a login at an
/// identity provider.
pub trait AssertionSource: Send + Sync + 'static {
    /// Returns an assertion for an authorization server, by its issuer, and for a resource. It is
    /// called for each token, since assertions expire soon.
    ///
    /// # Errors
    ///
    /// If there is none. The login fails.
    fn assertion<'a>(&'a self, issuer: &'a str, resource: &'a str) -> DriverFuture<'a, Secret>;
}

impl<F, Fut> AssertionSource for F
where
    F: Fn(String, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Secret, BoxError>> + Send + 'static,
{
    fn assertion<'a>(&'a self, issuer: &'a str, resource: &'a str) -> DriverFuture<'a, Secret> {
        Box::pin(self(issuer.to_owned(), resource.to_owned()))
    }
}
