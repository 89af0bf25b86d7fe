//! Documents that cannot be read at all.

/// Why an OpenAPI document does not become tools. Single operations that cannot become tools are
/// [skipped](crate::OpenApiTools::skipped) instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenApiError {
    /// The document is not JSON. With the feature `yaml`, this is about documents that begin with
    /// `{` only.
    #[cfg_attr(feature = "yaml", error("the OpenAPI document is not JSON: {0}"))]
    #[cfg_attr(
        not(feature = "yaml"),
        error(
            "the OpenAPI document is not JSON: {0}; to read YAML, enable the feature \
             `openapi-yaml` of mrtr, or `yaml` of mrtr-openapi"
        )
    )]
    InvalidJson(#[from] serde_json::Error),
    /// The document does not begin with `{`, so it was read as YAML, and it is not valid YAML or
    /// exceeds a limit.
    #[cfg(feature = "yaml")]
    #[error("cannot read the OpenAPI document as YAML: {0}")]
    InvalidYaml(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The document has another version than 3.0, 3.1 and 3.2.
    #[error("unsupported OpenAPI version {0:?}; supported are 3.0, 3.1 and 3.2")]
    UnsupportedVersion(String),
    /// The document has no version. Documents of Swagger 2.0 have none.
    #[error(
        "the document has no string \"openapi\" with its version; Swagger 2.0 is not supported"
    )]
    MissingVersion,
    /// The base URL is not a URL of HTTP, or it has credentials, a query or a fragment.
    #[error("invalid base URL of the API: {reason}")]
    BaseUrl {
        /// What is wrong with it. Does not contain the URL, which may have credentials.
        reason: String,
    },
}
