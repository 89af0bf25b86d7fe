//! What a server says about itself.

use mrtr::schema::capabilities::Implementation;
use mrtr::schema::discover::DiscoverResult;
use mrtr::schema::meta::key;

/// Returns the name, version and descriptions that a server reports; `None` if it reports none.
pub(crate) fn server_info(found: &DiscoverResult) -> Option<Implementation> {
    let info = found.meta.as_ref()?.get(key::SERVER_INFO)?;
    serde_json::from_value(info.clone()).ok()
}
