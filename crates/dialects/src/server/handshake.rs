//! `initialize` and `ping`, which all dialects have from revision 2025-11-25.

use mrtr_schema::RawJson;
use mrtr_schema::capabilities::{ClientCapabilities, Implementation};
use mrtr_schema::discover::DiscoverResult;
use mrtr_schema::json::ObjectWriter;
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::meta::key;
use mrtr_schema::tasks::EXTENSION;
use mrtr_schema::{Object, method};
use mrtr_transport::RequestHandler;
use serde::Deserialize;
use serde_json::json;

use super::engine::{Caller, Engine, malformed};
use crate::Dialect;

pub(crate) const INITIALIZE: &str = "initialize";
const PING: &str = "ping";

/// Parameters of `initialize`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InitializeParams {
    #[serde(default)]
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) client_info: Option<Implementation>,
}

impl<H: RequestHandler> Engine<H> {
    /// Answers the methods that are not the handler's; `None` for all others.
    pub(crate) async fn own_method(
        &self,
        caller: &Caller,
        request: &Request,
    ) -> Option<Result<RawJson, ErrorObject>> {
        match request.method.as_str() {
            INITIALIZE => Some(self.initialize(caller).await),
            PING => Some(Ok(ObjectWriter::with_capacity(2).end())),
            // The dialects have no subscriptions, and their task methods are translated.
            method::LISTEN | method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL => {
                Some(Err(ErrorObject::method_not_found(&request.method)))
            }
            _ => None,
        }
    }

    async fn initialize(&self, caller: &Caller) -> Result<RawJson, ErrorObject> {
        let discovered = self.request(caller, method::DISCOVER, &json!({})).await?;
        let discovered: DiscoverResult =
            serde_json::from_str(discovered.as_str()).map_err(|error| malformed(&error))?;
        let DiscoverResult { mut capabilities, instructions, meta, .. } = discovered;
        let has_tasks = capabilities.has_extension(EXTENSION)
            && matches!(self.dialect, Dialect::Incomplete | Dialect::Tasks2322);
        // No dialect has these.
        capabilities.extensions = None;
        capabilities.logging = None;
        let lists = [&mut capabilities.tools, &mut capabilities.prompts];
        lists.into_iter().flatten().for_each(|list| list.list_changed = None);
        if let Some(resources) = &mut capabilities.resources {
            (resources.subscribe, resources.list_changed) = (None, None);
        }
        let info = meta.and_then(|mut meta| meta.remove(key::SERVER_INFO)).unwrap_or_default();
        let mut capabilities: Object =
            serde_json::from_value(json!(capabilities)).map_err(|error| malformed(&error))?;
        if has_tasks {
            let tasks = json!({ "cancel": {}, "requests": { "tools": { "call": {} } } });
            capabilities.insert("tasks".to_owned(), tasks);
        }
        let mut result = json!({
            "protocolVersion": self.dialect.protocol_version(),
            "capabilities": capabilities,
            "serverInfo": info,
        });
        if let (Some(result), Some(instructions)) = (result.as_object_mut(), instructions) {
            result.insert("instructions".to_owned(), instructions.into());
        }
        RawJson::new(&result).map_err(|error| malformed(&error))
    }
}
