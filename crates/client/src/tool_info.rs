//! Facts about listed tools that calls need.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use mrtr_schema::tool::Tool;
use mrtr_transport::headers::ParamHeader;
use serde_json::Value;

use crate::error::CallError;
use crate::output_schema::OutputSchema;
use crate::pending_call::PendingCall;

/// Facts about one tool.
#[derive(Debug)]
pub(crate) struct ToolInfo {
    /// Arguments that are mirrored in headers.
    param_headers: Vec<ParamHeader>,
    pub(crate) output_schema: OutputSchema,
}

impl ToolInfo {
    /// Reads a listed tool. The error is the reason why the tool cannot be called.
    pub(crate) fn from_tool(tool: &Tool) -> Result<Self, String> {
        Ok(Self {
            param_headers: ParamHeader::from_schema(&tool.input_schema)
                .map_err(|error| error.to_string())?,
            output_schema: OutputSchema::of(tool),
        })
    }

    /// Checks the output schema before a call is sent for the first time. Later, the result or the
    /// earlier rounds would be lost.
    pub(crate) fn check_output_schema(&self, call: &PendingCall) -> Result<(), CallError> {
        if call.state.is_some() || call.task.is_some() {
            return Ok(());
        }
        self.output_schema.check().map_err(|why| {
            CallError::protocol(format!("tool {:?} was not called: {why}", call.target()))
        })
    }

    /// Returns the headers that mirror arguments of `call`, as names and values.
    pub(crate) fn param_headers(
        &self,
        call: &PendingCall,
    ) -> Result<Vec<(String, String)>, CallError> {
        if self.param_headers.is_empty() {
            return Ok(Vec::new());
        }
        let arguments: Value = call.param("arguments").unwrap_or_default();
        let mut headers = Vec::new();
        for param in &self.param_headers {
            if let Some(value) =
                param.value_in(&arguments).map_err(|error| CallError::request(error.to_string()))?
            {
                headers.push((param.name.clone(), value));
            }
        }
        Ok(headers)
    }
}

/// The tools of the last listing.
#[derive(Debug, Default)]
pub(crate) struct ToolInfos(Mutex<HashMap<String, Arc<ToolInfo>>>);

impl ToolInfos {
    pub(crate) fn get(&self, tool: &str) -> Option<Arc<ToolInfo>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(tool).cloned()
    }

    pub(crate) fn replace(&self, tools: HashMap<String, Arc<ToolInfo>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tools;
    }
}
