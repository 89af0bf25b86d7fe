//! Tools.

use std::fmt;
use std::time::Duration;

use mrtr_schema::Object;
use mrtr_schema::content::ContentBlock;
use mrtr_schema::tool::{CallToolResult, Tool as WireTool, ToolAnnotations};

use mrtr_transport::headers::ParamHeader;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::client_feature::ClientFeature;
use crate::error::Error;
use crate::form::output_schema_of;
use crate::handler::{Erased, Handler, IntoOutput, Parts};
use crate::manual::InputRequired;
use crate::rounds::Version;
use crate::schema_validation::Schemas;

/// A tool: its description for clients, and its handler.
pub struct Tool {
    pub(crate) wire: WireTool,
    pub(crate) rules: CallOptions,
    pub(crate) handler: Erased<ToolOutput>,
    /// Arguments that are mirrored in headers; read when the server is built.
    pub(crate) param_headers: Vec<ParamHeader>,
    /// Whether its author wrote a schema.
    pub(crate) by_hand: bool,
    /// What arguments and results are held against; read when the server is built.
    pub(crate) schemas: Schemas,
}

/// What holds for the flows of a tool or prompt.
#[derive(Debug, Clone)]
pub(crate) struct CallOptions {
    pub(crate) asks: Vec<ClientFeature>,
    /// Why a form that it asks for cannot be.
    pub(crate) wrong_form: Option<String>,
    /// How long a sealed state is good.
    pub(crate) answer_timeout: Duration,
    /// How long a flow may take from its first round.
    pub(crate) lifetime: Duration,
    /// How many rounds a flow may take.
    pub(crate) max_rounds: u32,
    /// How long one leg may run.
    pub(crate) deadline: Duration,
    /// Whether each state can be used once.
    pub(crate) single_use: bool,
    /// Which handler this is.
    pub(crate) version: Version,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            asks: Vec::new(),
            wrong_form: None,
            answer_timeout: Duration::from_mins(10),
            lifetime: Duration::from_hours(1),
            max_rounds: 100,
            deadline: Duration::from_mins(1),
            single_use: false,
            version: Version::default(),
        }
    }
}

impl Tool {
    /// A tool. The schemas of its arguments, and of its output if that is [`Json`], come from the
    /// handler's type.
    ///
    /// Where a property of the schema has `x-mcp-header` (with schemars:
    /// `#[schemars(extend("x-mcp-header" = "Region"))]`), HTTP clients mirror the argument in the header
    /// `Mcp-Param-Region`, and a request whose header and argument differ is refused.
    pub fn new<A>(
        name: impl Into<String>,
        description: impl Into<String>,
        handler: impl Handler<A, ToolOutput>,
    ) -> Self {
        let Parts { arguments: input_schema, output: output_schema, call: handler } =
            handler.erase();
        let mut wire = WireTool::new(name, input_schema).with_description(description);
        wire.output_schema = output_schema;
        let (rules, param_headers, schemas) =
            (CallOptions::default(), Vec::new(), Schemas::default());
        Self { wire, rules, handler, param_headers, by_hand: false, schemas }
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
        self.by_hand = true;
        self
    }

    /// A schema of the structured output other than the one that [`Json`] brings. Output that does not fit is
    /// an internal error, said in the log; without the feature `validate`, it goes out.
    pub fn output_schema(mut self, schema: Object) -> Self {
        self.wire.output_schema = Some(schema);
        self.by_hand = true;
        self
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool")
            .field("wire", &self.wire)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

/// What a tool came to. Text turns into it, and so does [`InputRequired`].
#[derive(Debug)]
pub struct ToolOutput(pub(crate) Output<CallToolResult>);

/// A result, or questions in the manual form. Boxed, since it is handed on from future to future.
#[derive(Debug)]
pub(crate) enum Output<T> {
    Complete(Box<T>),
    InputRequired(Box<InputRequired>),
}

impl<T> Output<T> {
    pub(crate) fn complete(result: T) -> Self {
        Self::Complete(Box::new(result))
    }

    pub(crate) fn questions(questions: InputRequired) -> Self {
        Self::InputRequired(Box::new(questions))
    }
}

impl ToolOutput {
    /// Text for the model.
    pub fn text(text: impl Into<String>) -> Self {
        Self::content([ContentBlock::text(text)])
    }

    /// Any content for the model.
    pub fn content(blocks: impl IntoIterator<Item = ContentBlock>) -> Self {
        let content = blocks.into_iter().collect();
        Self(Output::complete(CallToolResult::new(content)))
    }

    /// A value for programs, and content for the model that says the same in its own way. For most
    /// tools, [`Json`] is simpler.
    pub fn structured(value: Value, blocks: impl IntoIterator<Item = ContentBlock>) -> Self {
        let content = blocks.into_iter().collect();
        Self(Output::complete(CallToolResult::new(content).with_structured_content(value)))
    }

    /// A failure that the model should read.
    pub(crate) fn failure(message: String) -> CallToolResult {
        CallToolResult::error(vec![ContentBlock::text(message)])
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<InputRequired> for ToolOutput {
    fn from(questions: InputRequired) -> Self {
        Self(Output::questions(questions))
    }
}

/// Output for programs: the tool's `structuredContent`, with the schema of `T` as its `outputSchema`
/// (specification: tools, "Structured Content" and "Output Schema").
///
/// The model gets the same as text, as JSON. A handler that ends in an error has no structured content.
///
/// ```
/// use mrtr_server::{Context, Json, Result, Tool};
///
/// #[derive(serde::Serialize, schemars::JsonSchema)]
/// struct Weather {
///     /// In degrees Celsius.
///     temperature: f64,
/// }
///
/// async fn weather(_: Context) -> Result<Json<Weather>> {
///     Ok(Json(Weather { temperature: 21.5 }))
/// }
///
/// let tool = Tool::new("weather", "The weather here", weather);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: Serialize + JsonSchema> IntoOutput<ToolOutput> for Json<T> {
    fn schema() -> Option<Object> {
        Some(output_schema_of::<T>())
    }

    fn into_output(self) -> Result<ToolOutput, Error> {
        let value = serde_json::to_value(self.0)?;
        let text = ContentBlock::text(value.to_string());
        Ok(ToolOutput::structured(value, [text]))
    }
}
