//! The metadata of MCP Apps, and the policy that a host makes of it.

use mrtr_schema::Object;
use mrtr_schema::apps::{ResourceUiMeta, ToolUiMeta};
use mrtr_schema::tool::Tool;

/// Reads a `_meta`, as that of a tool and as that of a resource.
///
/// # Panics
///
/// If what is read and written again reads differently, or if the metadata adds something else than
/// origins to the policy.
pub fn apps(data: &[u8]) {
    let Ok(meta) = serde_json::from_slice::<Object>(data) else { return };
    let tool = Tool::new("tool", Object::new()).with_meta(meta.clone());
    if let Ok(ui) = ToolUiMeta::of(&tool) {
        let mut written = meta.clone();
        ui.write_to(&mut written);
        let again = ToolUiMeta::of(&Tool::new("tool", Object::new()).with_meta(written));
        assert_eq!(again, Ok(ui));
    }
    let Ok(Some(ui)) = ResourceUiMeta::from_meta(Some(&meta)) else { return };
    let mut written = Object::new();
    ui.write_to(&mut written);
    assert_eq!(ResourceUiMeta::from_meta(Some(&written)), Ok(Some(ui.clone())));
    let default = ResourceUiMeta::default().csp.unwrap_or_default().to_header();
    let header = ui.csp.clone().unwrap_or_default().to_header();
    assert_eq!(header.split(';').count(), default.split(';').count(), "{header}");
    let is_of_default = |source: &&str| default.split([' ', ';']).any(|known| known == *source);
    for source in header.split([' ', ';']).filter(|source| !is_of_default(source)) {
        let rest = ["https://", "http://", "wss://", "ws://"]
            .iter()
            .find_map(|scheme| source.strip_prefix(scheme));
        let is_host = |c: char| c.is_ascii_alphanumeric() || "-.:*".contains(c);
        assert!(rest.is_some_and(|rest| rest.chars().all(is_host)), "{header}");
    }
    let is_permission = |c: char| c.is_ascii_lowercase() || "-; ".contains(c);
    assert!(ui.permissions.unwrap_or_default().to_allow().chars().all(is_permission));
}
