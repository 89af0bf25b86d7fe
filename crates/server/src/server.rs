//! A server, and how it is put together.

use std::fmt;
use std::sync::Arc;

use mrtr_codec::{KeyRing, RingError, Seal};
use mrtr_schema::capabilities::{Implementation, ListCapability, ServerCapabilities};
use serde_json::json;

use crate::clock::{Clock, SystemClock};
use crate::prompt::Prompt;
use crate::tool::Tool;

/// A server: tools, prompts, and the keys that seal the state of their flows. It keeps nothing
/// between requests. Cheap to clone.
///
/// It implements [`mrtr_transport::Dispatch`], by which a transport calls it.
#[derive(Clone)]
pub struct Server {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) info: Implementation,
    pub(crate) instructions: Option<String>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) sealer: Box<dyn Seal>,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) anonymous: bool,
    pub(crate) provided: http::Extensions,
}

/// Builds a [`Server`].
#[must_use = "call `build`"]
pub struct ServerBuilder {
    info: Implementation,
    instructions: Option<String>,
    tools: Vec<Tool>,
    prompts: Vec<Prompt>,
    sealer: Option<Box<dyn Seal>>,
    clock: Box<dyn Clock>,
    anonymous: bool,
    provided: http::Extensions,
}

/// Why there is no server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Two tools, or two prompts, have one name.
    #[error("there are two {kind}s with the name {name:?}")]
    Duplicate {
        /// `tool` or `prompt`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A name that clients need not accept.
    #[error("the {kind} name {name:?} is not 1 to 128 of the characters A-Z a-z 0-9 _ - .")]
    Name {
        /// `tool` or `prompt`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A tool's arguments are no object.
    #[error(
        "the arguments of tool {0:?} must be a struct: their JSON Schema has to have `type: object`"
    )]
    Arguments(String),
    /// The ephemeral key could not be made.
    #[error(transparent)]
    Keys(#[from] RingError),
}

impl Server {
    /// Starts a server with a name and a version for clients to show.
    pub fn builder(name: impl Into<String>, version: impl Into<String>) -> ServerBuilder {
        ServerBuilder {
            info: Implementation::new(name, version),
            instructions: None,
            tools: Vec::new(),
            prompts: Vec::new(),
            sealer: None,
            clock: Box::new(SystemClock),
            anonymous: false,
            provided: http::Extensions::new(),
        }
    }
}

impl Inner {
    pub(crate) fn capabilities(&self) -> ServerCapabilities {
        ServerCapabilities {
            tools: (!self.tools.is_empty()).then(ListCapability::default),
            prompts: (!self.prompts.is_empty()).then(ListCapability::default),
            ..ServerCapabilities::default()
        }
    }
}

impl ServerBuilder {
    /// A name for people, a description, icons: all that clients may show.
    pub fn info(mut self, info: Implementation) -> Self {
        self.info = info;
        self
    }

    /// Guidance for models on how to use this server.
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = Some(text.into());
        self
    }

    /// Adds a tool. Clients see tools in the order in which they were added.
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds a prompt.
    pub fn prompt(mut self, prompt: Prompt) -> Self {
        self.prompts.push(prompt);
        self
    }

    /// The keys that seal the state of flows: the same ring on every replica. Default: a key of this
    /// process alone, which no other replica can open.
    pub fn key_ring(self, ring: KeyRing) -> Self {
        self.sealer(ring)
    }

    /// Something else that seals.
    pub fn sealer(mut self, sealer: impl Seal + 'static) -> Self {
        self.sealer = Some(Box::new(sealer));
        self
    }

    /// Serves callers of whom nobody has established who they are.
    ///
    /// Without this, a request is served only if something in front of the server, such as a tower
    /// layer, has put a [`mrtr_codec::Principal`] into its extensions. A flow's state is bound to that
    /// principal; anonymous callers all look the same, and can use each other's states.
    pub fn anonymous(mut self) -> Self {
        self.anonymous = true;
        self
    }

    /// Gives `value` to all handlers, which get it by its type from [`crate::Context::get`]: a pool of
    /// connections, a configuration. Something of the same type from a layer in front comes first.
    pub fn provide<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.provided.insert(value);
        self
    }

    /// What tells the time. Default: [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Puts the server together.
    ///
    /// # Errors
    ///
    /// If names are repeated or unfit, a tool's arguments are no struct, or there are no random numbers
    /// for the default key.
    pub fn build(self) -> Result<Server, BuildError> {
        check_names("tool", self.tools.iter().map(|tool| &tool.wire.name))?;
        check_names("prompt", self.prompts.iter().map(|prompt| &prompt.wire.name))?;
        for tool in &self.tools {
            if tool.wire.input_schema.get("type") != Some(&json!("object")) {
                return Err(BuildError::Arguments(tool.wire.name.clone()));
            }
        }
        let sealer = match self.sealer {
            Some(sealer) => sealer,
            None => {
                tracing::info!(
                    target: "mrtr::state",
                    "no key ring was given: flows can only be continued by this process, until it ends"
                );
                Box::new(KeyRing::ephemeral()?)
            }
        };
        let inner = Inner {
            info: self.info,
            instructions: self.instructions,
            tools: self.tools,
            prompts: self.prompts,
            sealer,
            clock: self.clock,
            anonymous: self.anonymous,
            provided: self.provided,
        };
        Ok(Server { inner: Arc::new(inner) })
    }
}

fn check_names<'a>(
    kind: &'static str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), BuildError> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        let fit = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.');
        if !(1..=128).contains(&name.len()) || !name.bytes().all(fit) {
            return Err(BuildError::Name { kind, name: name.clone() });
        }
        if !seen.insert(name) {
            return Err(BuildError::Duplicate { kind, name: name.clone() });
        }
    }
    Ok(())
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("info", &self.inner.info)
            .field("tools", &self.inner.tools)
            .field("prompts", &self.inner.prompts)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder").field("info", &self.info).finish_non_exhaustive()
    }
}
