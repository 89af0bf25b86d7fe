//! Options of the HTTP server.

use std::time::Duration;

use ::http::{Method, Request, StatusCode};

use crate::http::server::readiness::Readiness;

/// Options of [`serve`](super::serve): paths, limits and timeouts.
///
/// ```
/// use std::time::Duration;
///
/// use mrtr_transport::http::{Readiness, ServeOptions};
///
/// let options = ServeOptions::default()
///     .with_path("/api/mcp")
///     .with_shutdown_timeout(Duration::from_secs(30))
///     .with_readiness(Readiness::with_drain_delay(Duration::from_secs(5)));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServeOptions {
    path: String,
    metadata_path: String,
    pub(super) header_timeout: Duration,
    pub(super) max_header_bytes: usize,
    pub(super) max_connections: usize,
    pub(super) shutdown_timeout: Duration,
    health_path: String,
    ready_path: String,
    readiness: Readiness,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            path: "/mcp".to_owned(),
            metadata_path: String::new(),
            header_timeout: Duration::from_secs(15),
            max_header_bytes: 64 << 10,
            max_connections: 12_000,
            shutdown_timeout: Duration::from_secs(10),
            health_path: "/health".to_owned(),
            ready_path: "/ready".to_owned(),
            readiness: Readiness::default(),
        }
    }
}

impl ServeOptions {
    /// Sets the path of the MCP endpoint. Default: `/mcp`. Paths other than this one, the metadata
    /// and the two probes are answered with 404.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Sets the path of the metadata of the protected resource (RFC 9728), whose requests the
    /// service answers, too. Default: none.
    ///
    /// `ProtectedResource::metadata_path` of `mrtr-auth` returns it.
    #[must_use]
    pub fn with_metadata_path(mut self, path: impl Into<String>) -> Self {
        self.metadata_path = path.into();
        self
    }

    /// Sets the longest time that a connection may take to send the head of a request, stay idle
    /// between two requests, or accept nothing of a response. Default: 15 s.
    ///
    /// A connection is closed up to a quarter of that later, or up to 2 s. Clients that reuse
    /// connections should close idle ones earlier.
    #[must_use]
    pub fn with_header_timeout(mut self, timeout: Duration) -> Self {
        self.header_timeout = timeout;
        self
    }

    /// Sets the longest head of a request, and the longest trailers of a chunked body, in bytes.
    /// Default: 64 KiB, minimum: 8 KiB. A longer head is answered with 431.
    #[must_use]
    pub fn with_max_header_bytes(mut self, bytes: usize) -> Self {
        self.max_header_bytes = bytes;
        self
    }

    /// Sets the maximum number of open connections. Default: 12,000. Further connections wait to be
    /// accepted.
    ///
    /// It should exceed
    /// [`RequestLimits::with_max_in_flight`](crate::http::RequestLimits::with_max_in_flight), so
    /// that an overloaded server still accepts connections to answer with 503, and load balancers
    /// can reach the probes.
    #[must_use]
    pub fn with_max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Sets the longest time that requests in flight may take after the shutdown has begun.
    /// Default: 10 s.
    #[must_use]
    pub fn with_shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// Sets the path of the liveness probe, where `GET` is answered with 200 as long as the process
    /// serves requests. Default: `/health`. An empty path turns the probe off.
    ///
    /// Probes are not subject to the endpoint's host policy.
    #[must_use]
    pub fn with_health_path(mut self, path: impl Into<String>) -> Self {
        self.health_path = path.into();
        self
    }

    /// Sets the path of the readiness probe, where `GET` is answered with 200 or 503. Default:
    /// `/ready`. An empty path turns the probe off.
    ///
    /// Probes are not subject to the endpoint's host policy.
    #[must_use]
    pub fn with_ready_path(mut self, path: impl Into<String>) -> Self {
        self.ready_path = path.into();
        self
    }

    /// Sets the flag that the readiness probe reports. Default: a flag of its own that is ready,
    /// without a drain delay.
    #[must_use]
    pub fn with_readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// Returns the flag that the readiness probe reports.
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Returns the status of a request that is not for the endpoint: a probe, or an unknown path.
    pub(super) fn status_without_endpoint<B>(&self, request: &Request<B>) -> Option<StatusCode> {
        let path = request.uri().path();
        // That of CONNECT. An empty option matches no request.
        if path.is_empty() {
            return Some(StatusCode::NOT_FOUND);
        }
        if path == self.path || path == self.metadata_path {
            return None;
        }
        let status = match path {
            _ if path == self.health_path => StatusCode::OK,
            _ if path == self.ready_path && self.readiness.is_ready() => StatusCode::OK,
            _ if path == self.ready_path => StatusCode::SERVICE_UNAVAILABLE,
            _ => return Some(StatusCode::NOT_FOUND),
        };
        let is_probe = matches!(*request.method(), Method::GET | Method::HEAD);
        Some(if is_probe { status } else { StatusCode::METHOD_NOT_ALLOWED })
    }
}
