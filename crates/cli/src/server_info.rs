//! What a server says about itself.

use mrtr::schema::capabilities::Implementation;
use mrtr::schema::discover::DiscoverResult;

/// The name, version and descriptions of a server. Empty where it reports none.
#[derive(Debug, Default)]
pub(crate) struct ServerInfo {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) website_url: Option<String>,
}

impl ServerInfo {
    pub(crate) fn of(found: &DiscoverResult) -> Self {
        let info =
            found.meta.as_ref().and_then(|meta| meta.get(mrtr::schema::meta::key::SERVER_INFO));
        let info =
            info.and_then(|info| serde_json::from_value::<Implementation>(info.clone()).ok());
        let Some(info) = info else { return Self::default() };
        Self {
            name: info.name,
            version: info.version,
            title: info.title,
            description: info.description,
            website_url: info.website_url,
        }
    }
}
