//! Tools: functions that a model can call.

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
use crate::tasks::TaskPolicy;

/// A tool: its description for clients, and its handler.
pub struct Tool {
    pub(crate) wire: WireTool,
    pub(crate) options: CallOptions,
    pub(crate) handler: ErasedHandler<ToolOutput>,
    /// The arguments that are mirrored in headers. Set when the server is built.
    pub(crate) param_headers: Vec<ParamHeader>,
    /// True if the author set a schema.
    pub(crate) custom_schema: bool,
    /// True if arguments and results are not validated against the schemas.
    pub(crate) skip_validation: bool,
    /// The validators of arguments and results. Set when the server is built.
    pub(crate) schemas: Schemas,
    /// When its calls become tasks.
    pub(crate) task: Option<TaskPolicy>,
    /// The URI of the UI resource that shows its results. Set when the server is built.
    pub(crate) ui_resource: Option<String>,
}

impl Tool {
    /// Creates a tool from a [`Handler`]: an async function whose last parameter holds the
    /// arguments. The schemas of the arguments, and of the output if that is
    /// [`Json`](crate::Json), come from the handler's type.
    ///
    /// A schema that contradicts its type is a mistake: with `#[schemars(required)]` or
    /// `#[schemars(with = …)]`, it can demand what the type does not. Debug builds check results
    /// against it. Arguments are checked against their type and the schema's limits, such as
    /// `range`, `length` and `pattern`.
    ///
    /// HTTP clients mirror an argument in a header if its property in the schema has
    /// `x-mcp-header`. With `#[schemars(extend("x-mcp-header" = "Region"))]`, the header is
    /// `Mcp-Param-Region`. A request whose header and argument differ is refused.
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
            skip_validation: false,
            schemas: Schemas::default(),
            task: None,
            ui_resource: None,
        }
    }

    /// Sets when the calls of this tool become [tasks](crate::tasks). The server needs a
    /// [task store](crate::ServerBuilder::task_store). Default: never.
    ///
    /// A policy for a handler in the manual form is a build error.
    pub fn task(mut self, policy: TaskPolicy) -> Self {
        self.task = Some(policy);
        self
    }

    /// Replaces the name, the description and everything else that clients get to know of the tool.
    /// Its schemas count as set by the author: see [`input_schema`](Self::input_schema). Call it
    /// before the methods that set a part of it.
    ///
    /// For tools that are defined by data, such as those of another server.
    pub fn definition(mut self, definition: WireTool) -> Self {
        self.wire = definition;
        self.custom_schema = true;
        self
    }

    /// Sets the annotations: hints for clients about the tool's behaviour.
    pub fn annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.wire.annotations = Some(annotations);
        self
    }

    /// Sets the schema of the arguments, instead of that of their type: JSON Schema without
    /// external references, of the dialect that `$schema` names, from draft 4 to 2020-12. Default:
    /// 2020-12.
    ///
    /// Arguments must match both the schema and the type. Without the feature `validate`, only the
    /// type is checked.
    pub fn input_schema(mut self, schema: Object) -> Self {
        self.wire.input_schema = schema;
        self.custom_schema = true;
        self
    }

    /// Sets the schema of the structured output, instead of that of [`Json`](crate::Json), as in
    /// [`input_schema`](Self::input_schema).
    ///
    /// Output that does not match ends the call with an internal error, and the log names the
    /// reason. Without the feature `validate`, output is not checked.
    pub fn output_schema(mut self, schema: Object) -> Self {
        self.wire.output_schema = Some(schema);
        self.custom_schema = true;
        self
    }

    /// Skips the validation of arguments and results against the schemas, which may then be of any
    /// dialect. The input schema must still have the type `object` at the top.
    ///
    /// For tools that forward calls to another server. That server validates them, and compiling
    /// its untrusted schemas would take time and memory here.
    pub fn skip_validation(mut self) -> Self {
        self.skip_validation = true;
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
