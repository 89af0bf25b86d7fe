//! Methods that extensions of the protocol add.

use mrtr_schema::jsonrpc::{Request, params};
use serde_json::{Value, json};

use super::execute::guarded;
use super::{complete, failed};
use crate::extension::{ExtensionRequest, Method};
use crate::registry::Registry;
use crate::registry::ResponseFuture;
use crate::request_parts::RequestParts;

impl Registry {
    /// A method that an extension has added.
    pub(super) fn added<'r>(
        &'r self,
        method: &'r Method,
        request: &'r Request,
        parts: Box<RequestParts>,
    ) -> ResponseFuture<'r> {
        Box::pin(async move {
            let params = params(request)?;
            let answering = guarded(|| method.call(ExtensionRequest { params, parts })).await?;
            let mut result =
                answering.map_err(|error| failed(&error, "an extension's method failed"))?;
            result.entry("resultType").or_insert_with(|| json!("complete"));
            let meta = result.entry("_meta").or_insert_with(|| json!({}));
            if let Value::Object(meta) = meta {
                meta.extend(self.meta.clone());
            }
            complete(&result)
        })
    }
}
