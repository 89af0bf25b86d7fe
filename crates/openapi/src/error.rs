//! Documents that cannot be read at all.

/// Why a document does not become tools. Single operations that cannot become tools are
/// [skipped](crate::OpenApiTools::skipped) instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenApiError {
    /// The document is not JSON.
    #[error("the OpenAPI document is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The document is not of version 3.0, 3.1 or 3.2.
    #[error("the OpenAPI document has the version {0}; supported are 3.0, 3.1 and 3.2")]
    Version(String),
    /// The base URL is not an HTTP URL, or it has credentials, a query or a fragment.
    #[error("the base URL {url:?} {why}")]
    BaseUrl {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: String,
    },
}
