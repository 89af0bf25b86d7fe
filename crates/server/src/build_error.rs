//! The errors of building a server.

use mrtr_codec::RingError;

/// The errors of `ServerBuilder::build` and `Server::update`: mistakes in how the server is put
/// together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Two tools, prompts, resources or extension methods have the same name.
    #[error("duplicate {kind} {name:?}")]
    Duplicate {
        /// `tool`, `prompt`, `resource` or `method`.
        kind: &'static str,
        /// The name, or the URI.
        name: String,
    },
    /// A prompt has an empty name.
    #[error("a prompt has no name")]
    PromptName,
    /// The name of a tool has characters or a length that clients may reject (specification: tools,
    /// "Tool Names").
    #[error("invalid tool name {0:?}: use 1 to 128 of the characters A-Z a-z 0-9 _ - .")]
    ToolName(String),
    /// A tool's arguments are not an object.
    #[error("tool {0:?}: the arguments must be a struct, with a JSON Schema of type `object`")]
    Arguments(String),
    /// A tool's schema has an invalid `x-mcp-header`.
    #[error("tool {tool:?}: invalid `x-mcp-header`: {why}")]
    Header {
        /// The tool.
        tool: String,
        /// The reason.
        why: String,
    },
    /// A tool has an invalid JSON Schema. One that was derived from a type is checked in debug
    /// builds, and in release builds if it has rules that the type does not check.
    #[error("tool {tool:?}: invalid JSON Schema: {why}")]
    Schema {
        /// The tool.
        tool: String,
        /// The reason.
        why: String,
    },
    /// A UI resource (MCP Apps), or its tool, is invalid.
    #[error("{of}: {why}")]
    App {
        /// The tool, resource or resource template.
        of: String,
        /// The reason.
        why: String,
    },
    /// An icon is invalid, so that clients would reject it.
    #[error("{of:?}: invalid icon: {why}")]
    Icon {
        /// The owner of the icon.
        of: String,
        /// The reason.
        why: String,
    },
    /// The annotations of a resource are invalid.
    #[error("{of:?}: invalid annotations: {why}")]
    Annotations {
        /// The URI, or the URI template.
        of: String,
        /// The reason.
        why: String,
    },
    /// An extension has an invalid identifier.
    #[error("invalid extension identifier {0:?}: expected a form like com.example/name")]
    Extension(String),
    /// An extension method has the name of a method of the protocol or, on a server with a task
    /// store, of the extension for tasks.
    #[error("extension method {0:?} is a method of the protocol or of the extension for tasks")]
    Method(String),
    /// A resource has an invalid URI.
    #[error("invalid resource URI {uri:?}: {why}")]
    Uri {
        /// The URI.
        uri: String,
        /// The reason.
        why: String,
    },
    /// A handler is for single use, but the server has no store of used request states.
    #[error(
        "{0} is for single use, but the server has no `.single_use_store(…)` shared by all replicas"
    )]
    NoSingleUseStore(String),
    /// A tool has a task policy, but the server has no store of tasks.
    #[error("the tool {0:?} has a task policy, but the server has no `.task_store(…)`")]
    NoTaskStore(String),
    /// A tool in the manual form has a task policy.
    #[error("the tool {0:?} is in the manual form, and cannot be a task")]
    ManualTask(String),
    /// An update changes a list that was not declared as updatable.
    #[error("the server's {0} cannot be updated: build it with `.updatable::<…>()`")]
    NotUpdatable(&'static str),
    /// The limits of tasks are out of range.
    #[error("`task_lease` must be from 1 s to 24 h, and `max_running_tasks` at least 1")]
    TaskLimits,
    /// A handler requires a form that cannot be built from its type.
    #[error("{of}: invalid form: {why}")]
    Form {
        /// The handler that requires the form.
        of: String,
        /// The reason.
        why: String,
    },
    /// A handler's `min_compatible_version` is greater than its `version`, so that every round
    /// would restart the call.
    #[error("{0}: `min_compatible_version` is greater than `version`")]
    Version(String),
    /// A resource template is invalid or cannot be matched against URIs.
    #[error("invalid resource template {template:?}: {why}")]
    Template {
        /// The template.
        template: String,
        /// The reason.
        why: String,
    },
    /// A completion function is set for an argument that does not exist.
    #[error("{of} has no argument {argument:?} to complete")]
    Completion {
        /// The prompt or template.
        of: String,
        /// The argument.
        argument: String,
    },
    /// Neither `allow_anonymous` nor `require_principal` was called.
    #[error(
        "no authentication: call `.require_principal()` if a layer in front of the server \
         authenticates callers, or `.allow_anonymous()` if everyone may call"
    )]
    NoAuthentication,
    /// The server has handlers, but no key ring that seals their request states.
    #[error(
        "no key ring: give all replicas the same one with `.key_ring(…)`, or call \
         `.ephemeral_key()` if this process is the only replica"
    )]
    NoKeyRing,
    /// A handler extracts application state that was not given.
    #[error("{of} extracts `State<{missing}>`: give the server a value with `.state(…)`")]
    MissingState {
        /// The handler.
        of: String,
        /// The type of the missing state.
        missing: &'static str,
    },
    /// Two values of application state have the same type.
    #[error("two values of application state have the type `{0}`")]
    DuplicateState(&'static str),
    /// A timeout or limit of a handler is zero, or shorter than its unit.
    #[error("{of}: `{option}` must be at least {minimum}")]
    Timeout {
        /// The handler.
        of: String,
        /// The option, such as `answer_timeout`.
        option: &'static str,
        /// The smallest value, with its unit.
        minimum: &'static str,
    },
    /// The ephemeral key could not be generated.
    #[error(transparent)]
    Keys(#[from] RingError),
    /// The environment variable with the keys of a server in development has no key ring.
    #[error("environment variable MRTR_DEVELOPMENT_KEYS: {0}")]
    DevelopmentKeys(String),
}
