//! Methods of protocol extensions.

use mrtr_schema::jsonrpc::Request;
use serde_json::{Value, json};

use super::panics::catch_panics;
use super::{complete, log_handler_error};
use crate::extension::{ExtensionRequest, Method};
use crate::registry::{Registry, ResponseFuture};
use crate::request_parts::RequestParts;

impl Registry {
    /// Calls a method of an extension, and completes its result.
    pub(super) fn call_extension<'r>(
        &'r self,
        method: &'r Method,
        request: &'r Request,
        parts: Box<RequestParts>,
    ) -> ResponseFuture<'r> {
        Box::pin(async move {
            let params = request.decode_params()?;
            let called = catch_panics(|| method.call(ExtensionRequest { params, parts })).await?;
            let mut result = called
                .map_err(|error| log_handler_error(&error, "an extension's method failed"))?;
            result.entry("resultType").or_insert_with(|| json!("complete"));
            let meta = result.entry("_meta").or_insert_with(|| json!({}));
            if let Value::Object(meta) = meta {
                meta.extend(self.meta.clone());
            }
            complete(&result)
        })
    }
}
