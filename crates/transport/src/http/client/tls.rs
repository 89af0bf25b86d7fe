//! TLS settings of the HTTP client.

use super::builder::HttpClientBuilder;
use crate::error::{Kind, TransportError};

impl HttpClientBuilder {
    /// Trusts the certificate authorities in `pem`, in addition to those of the system. Several
    /// certificates may follow each other.
    ///
    /// # Errors
    ///
    /// If `pem` is not PEM text, or contains no certificate.
    pub fn root_certificates(mut self, pem: &[u8]) -> Result<Self, TransportError> {
        let certificates = reqwest::Certificate::from_pem_bundle(pem)
            .map_err(|error| invalid("invalid root certificates").with_source(error))?;
        if certificates.is_empty() {
            return Err(invalid("invalid root certificates: no certificate in the PEM text"));
        }
        self.http = self.http.tls_certs_merge(certificates);
        Ok(self)
    }

    /// Authenticates the client with a certificate of its own (mutual TLS). `pem` contains the
    /// private key, the certificate and its intermediates.
    ///
    /// # Errors
    ///
    /// If `pem` is not PEM text, or lacks the key or the certificate.
    pub fn client_certificate(mut self, pem: &[u8]) -> Result<Self, TransportError> {
        let identity = reqwest::Identity::from_pem(pem)
            .map_err(|error| invalid("invalid client certificate").with_source(error))?;
        self.http = self.http.identity(identity);
        Ok(self)
    }
}

fn invalid(message: &str) -> TransportError {
    TransportError::new(Kind::InvalidRequest, message)
}

#[cfg(test)]
mod tests {
    use crate::http::HttpClient;

    /// A self-signed certificate.
    const ROOT: &str = "\
-----BEGIN CERTIFICATE-----
MIIBiTCCAS+gAwIBAgIUYKc1FdrMnITGfbzjczjvxEd+M2EwCgYIKoZIzj0EAwIw
GTEXMBUGA1UEAwwObXJ0ciB0ZXN0IHJvb3QwIBcNMjYxMTI0MDQyMDQyWhgPMjEy
NjEwMzEwNDIwNDJaMBkxFzAVBgNVBAMMDm1ydHIgdGVzdCByb290MFkwEwYHKoZI
zj0CAQYIKoZIzj0DAQcDQgAEcuWqqUtnkB9FOIVdUiY+zFYJn6Nd1DOz7X3ofxJk
68OP0pa0V+SDo39LOXcXRQpCFpFwNCluJMxgMMHvVAWJ3KNTMFEwHQYDVR0OBBYE
FCik4YuQvTUnf33gVm9zL2sALryZMB8GA1UdIwQYMBaAFCik4YuQvTUnf33gVm9z
L2sALryZMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIhAJQVVbvQ
e/Eq9jjddnFDc0pHsqT6Vz7I1FNMNLp2KclSAiB9ucWRmlHj3COR5O6Qey/OoDo4
wyxZbbmixkDMzmx+tw==
-----END CERTIFICATE-----
";

    #[test]
    fn root_certificates_must_be_pem_with_a_certificate() {
        let builder = || HttpClient::builder("https://localhost/mcp");
        builder().root_certificates(ROOT.as_bytes()).unwrap().build().unwrap();
        builder().root_certificates(ROOT.repeat(2).as_bytes()).unwrap().build().unwrap();
        for pem in ["", "text", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
            let error = builder().root_certificates(pem.as_bytes()).unwrap_err();
            assert!(error.to_string().starts_with("invalid root certificates"), "{error}");
            assert!(error.is_not_sent(), "{error}");
        }
    }

    #[test]
    fn client_certificate_needs_a_key() {
        for pem in ["", ROOT] {
            let builder = HttpClient::builder("https://localhost/mcp");
            let error = builder.client_certificate(pem.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), "invalid client certificate");
        }
    }
}
