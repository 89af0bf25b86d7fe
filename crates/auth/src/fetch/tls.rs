//! TLS settings.

use std::sync::Arc;

use super::HttpSettings;

impl HttpSettings {
    /// Trusts certificate authorities in addition to those of the system. Returns the number of
    /// certificates.
    ///
    /// # Errors
    ///
    /// If `pem` is not PEM text.
    pub(crate) fn add_root_certificates(&mut self, pem: &[u8]) -> reqwest::Result<usize> {
        let certificates = reqwest::Certificate::from_pem_bundle(pem)?;
        let count = certificates.len();
        self.settings.push(Arc::new(move |client| client.tls_certs_merge(certificates.clone())));
        Ok(count)
    }
}
