//! Methods that extensions of the protocol add.

use mrtr_schema::jsonrpc::{Request, params};
use serde_json::{Value, json};

use super::leg::{guarded, start};
use super::methods::Answering;
use super::{complete, refused};
use crate::caller::Caller;
use crate::extension::{ExtensionCall, Method};
use crate::server::Inner;

impl Inner {
    /// A method that an extension has added.
    pub(super) fn added<'r>(
        &'r self,
        method: &'r Method,
        request: &'r Request,
        caller: Box<Caller>,
    ) -> Answering<'r> {
        Box::pin(async move {
            let params = params(request)?;
            let answering = start(|| method.answer(ExtensionCall { params, caller }))?;
            let mut result = guarded(answering).await?.map_err(|error| {
            let error_text = format!("{error:#}");
            tracing::error!(target: "mrtr::handler", error = error_text, "an extension's method failed");
            refused(&error)
        })?;
            result.entry("resultType").or_insert_with(|| json!("complete"));
            let meta = result.entry("_meta").or_insert_with(|| json!({}));
            if let Value::Object(meta) = meta {
                meta.extend(self.meta.clone());
            }
            complete(&result)
        })
    }
}
