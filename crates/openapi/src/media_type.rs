//! Media types.

/// Returns true for `application/json` and types that end with `+json`.
pub(crate) fn is_json(content_type: &str) -> bool {
    let essence = essence(content_type);
    essence == "application/json" || essence.ends_with("+json")
}

/// Returns true for a range of types, such as `application/*+json`.
pub(crate) fn is_range(content_type: &str) -> bool {
    essence(content_type).contains('*')
}

/// Returns true for `application/x-www-form-urlencoded`.
pub(crate) fn is_form(content_type: &str) -> bool {
    essence(content_type) == "application/x-www-form-urlencoded"
}

/// Returns true for `multipart/form-data`.
pub(crate) fn is_multipart(content_type: &str) -> bool {
    essence(content_type) == "multipart/form-data"
}

/// Returns a media type without its parameters, in lower case.
pub(crate) fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
