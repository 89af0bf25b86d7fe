//! Methods that extensions of the protocol add.

use mrtr_schema::jsonrpc::Request;
use serde_json::{Value, json};

use super::execute::guarded;
use super::{complete, failed};
use crate::extension::{ExtensionRequest, Method};
use crate::registry::Answering;
use crate::registry::Registry;
use crate::request_parts::RequestParts;

impl Registry {
    /// A method that an extension has added.
    pub(super) fn added<'r>(
        &'r self,
        method: &'r Method,
        request: &'r Request,
        parts: Box<RequestParts>,
    ) -> Answering<'r> {
        Box::pin(async move {
            let params = request.decode_params()?;
            let answering = guarded(|| method.answer(ExtensionRequest { params, parts })).await?;
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
