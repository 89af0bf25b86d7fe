//! TLS settings of logins.

use super::builder::{BuildError, OAuthClientBuilder};

impl OAuthClientBuilder {
    /// Trusts the certificate authorities in `pem` in the requests of logins, in addition to those
    /// of the system. Several certificates may follow each other.
    ///
    /// Requests to the MCP server have their own:
    /// [`HttpClientBuilder::root_certificates`](mrtr_transport::http::HttpClientBuilder::root_certificates).
    ///
    /// # Errors
    ///
    /// If `pem` is not PEM text, or contains no certificate.
    pub fn root_certificates(mut self, pem: &[u8]) -> Result<Self, BuildError> {
        match self.drivers.http.add_root_certificates(pem) {
            Ok(1..) => Ok(self),
            _ => Err(BuildError::RootCertificates),
        }
    }
}
