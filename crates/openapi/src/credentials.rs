//! The credentials that a document declares.

use serde_json::Value;

use crate::document::Document;
use crate::parameter::{Location, encode};

/// The maximum number of credentials that are left out: each argument is compared with all.
const MAX_CREDENTIALS: usize = 64;

/// The API keys of the document, in a query or a header. The operator sets them, and not the model.
#[derive(Debug, Default)]
pub(crate) struct Credentials(Vec<(Location, String)>);

impl Credentials {
    pub(crate) fn new(document: &Document) -> Self {
        let text = |scheme: &Value, key| scheme.get(key)?.as_str().map(str::to_owned);
        let of = |scheme: &Value| {
            let scheme = document.resolve(scheme).ok()?;
            let is_key = text(scheme, "type")? == "apiKey";
            is_key.then_some((Location::new(&text(scheme, "in")?)?, text(scheme, "name")?))
        };
        Self(document.security_schemes().filter_map(of).take(MAX_CREDENTIALS).collect())
    }

    pub(crate) fn contains(&self, location: Location, name: &str) -> bool {
        let is_same = |other: &String| {
            if location == Location::Header {
                other.eq_ignore_ascii_case(name)
            } else {
                other == name
            }
        };
        self.0.iter().any(|(of, other)| *of == location && is_same(other))
    }

    /// Returns the names in a query, encoded.
    pub(crate) fn of_query(&self) -> impl Iterator<Item = String> {
        let of_query = self.0.iter().filter(|(location, _)| *location == Location::Query);
        of_query.map(|(_, name)| encode(name))
    }
}
