//! Tools.

use std::fmt;

use mrtr_schema::Object;
use mrtr_schema::tool::{Tool as WireTool, ToolAnnotations};

use mrtr_transport::headers::ParamHeader;

use crate::call_options::CallOptions;
use crate::context::Context;
use crate::handler::{ErasedHandler, Handler, HandlerParts};
use crate::manual::ManualContext;
use crate::output::ToolOutput;
use crate::schema_validation::Schemas;

/// A tool: its description for clients, and its handler.
pub struct Tool {
    pub(crate) wire: WireTool,
    pub(crate) options: CallOptions,
    pub(crate) handler: ErasedHandler<ToolOutput>,
    /// Arguments that are mirrored in headers; read when the server is built.
    pub(crate) param_headers: Vec<ParamHeader>,
    /// Whether its author wrote a schema.
    pub(crate) custom_schema: bool,
    /// What arguments and results are held against; read when the server is built.
    pub(crate) schemas: Schemas,
}

impl Tool {
    /// A tool. The schemas of its arguments, and of its output if that is [`Json`], come from the
    /// handler's type.
    ///
    /// Where a property of the schema has `x-mcp-header` (with schemars:
    /// `#[schemars(extend("x-mcp-header" = "Region"))]`), HTTP clients mirror the argument in the header
    /// `Mcp-Param-Region`, and a request whose header and argument differ is refused.
    pub fn new<P>(
        name: impl Into<String>,
        description: impl Into<String>,
        handler: impl Handler<Context, P, ToolOutput>,
    ) -> Self {
        Self::from_parts(name.into(), description.into(), handler.erase(), false)
    }

    /// Creates a tool whose handler is in the [manual form](crate::manual).
    pub fn manual<P>(
        name: impl Into<String>,
        description: impl Into<String>,
        handler: impl Handler<ManualContext, P, ToolOutput>,
    ) -> Self {
        Self::from_parts(name.into(), description.into(), handler.erase(), true)
    }

    fn from_parts(
        name: String,
        description: String,
        handler: HandlerParts<ToolOutput>,
        manual: bool,
    ) -> Self {
        let HandlerParts { arguments: input_schema, output: output_schema, requirements, call } =
            handler;
        let mut wire = WireTool::new(name, input_schema).with_description(description);
        wire.output_schema = output_schema;
        Self {
            wire,
            options: CallOptions::new(requirements, manual),
            handler: call,
            param_headers: Vec::new(),
            custom_schema: false,
            schemas: Schemas::default(),
        }
    }

    /// Hints for clients.
    pub fn annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.wire.annotations = Some(annotations);
        self
    }

    /// A schema of the arguments other than the one that their type has: JSON Schema 2020-12, whose
    /// references stay inside. What is accepted has to fit both it and the type; without the feature
    /// `validate`, the type alone.
    pub fn input_schema(mut self, schema: Object) -> Self {
        self.wire.input_schema = schema;
        self.custom_schema = true;
        self
    }

    /// A schema of the structured output other than the one that [`Json`] brings. Output that does not fit is
    /// an internal error, said in the log; without the feature `validate`, it goes out.
    pub fn output_schema(mut self, schema: Object) -> Self {
        self.wire.output_schema = Some(schema);
        self.custom_schema = true;
        self
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool")
            .field("wire", &self.wire)
            .field("rules", &self.options)
            .finish_non_exhaustive()
    }
}
