//! What a server is checked for when it is put together.

use mrtr_codec::RingError;
use mrtr_schema::icon::Icon;
use mrtr_schema::{Object, uri};
use serde_json::Value;

use crate::dispatch::methods::OF_PROTOCOL;
use crate::tool::CallOptions;

/// Why there is no server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Two tools, prompts, resources or added methods have one name.
    #[error("there are two {kind}s with the name {name:?}")]
    Duplicate {
        /// `tool`, `prompt`, `resource` or `method`.
        kind: &'static str,
        /// The name, or the URI.
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
    /// A tool's schema has an `x-mcp-header` that is not allowed.
    #[error("the tool {tool:?} has headers that cannot be: {why}")]
    Header {
        /// The tool.
        tool: String,
        /// What is wrong.
        why: String,
    },
    /// A tool's schema that clients need not understand.
    #[error("the tool {tool:?} has a schema that cannot be: {why}")]
    Schema {
        /// The tool.
        tool: String,
        /// What is wrong.
        why: String,
    },
    /// An icon that clients have to throw away.
    #[error("{of:?} has an icon that cannot be: {why}")]
    Icon {
        /// What it is of.
        of: String,
        /// What is wrong with it.
        why: String,
    },
    /// An extension's identifier that is none.
    #[error("{0:?} names no extension: an identifier is like com.example/name")]
    Extension(String),
    /// A method that an extension cannot add: the protocol has it for servers.
    #[error("the method {0:?} is the protocol's own: no extension can add it")]
    Method(String),
    /// A resource's URI that is none.
    #[error("the resource {uri:?} has no URI: {why}")]
    Uri {
        /// What it has instead.
        uri: String,
        /// What is wrong with it.
        why: String,
    },
    /// Something is for single use, and nothing would remember what was used.
    #[error(
        "{0} is for single use, which takes something that remembers what was used: give the server a \
         `.single_use_store(…)`, which on more than one replica has to be one that all of them reach"
    )]
    NoSingleUseStore(String),
    /// A form that cannot be shown.
    #[error("{of} asks for a form that cannot be: {why}")]
    Form {
        /// What asks for it.
        of: String,
        /// What is wrong with it.
        why: String,
    },
    /// States of the handler's own version would start over, in every round.
    #[error("{0} starts over what its own version began: its version is before the one it names")]
    Version(String),
    /// A resource template that URIs cannot be matched against.
    #[error("the resource template {template:?} cannot be used: {why}")]
    Template {
        /// The template.
        template: String,
        /// What is wrong with it.
        why: String,
    },
    /// Suggestions for an argument that there is not.
    #[error("{of} has no argument {argument:?} to suggest values for")]
    Completion {
        /// The prompt or template.
        of: String,
        /// The argument.
        argument: String,
    },
    /// The ephemeral key could not be made.
    #[error(transparent)]
    Keys(#[from] RingError),
}

pub(crate) fn check_names<'a>(
    kind: &'static str,
    names: impl Iterator<Item = &'a String> + Clone,
) -> Result<(), BuildError> {
    for name in names.clone() {
        let fit = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.');
        if !(1..=128).contains(&name.len()) || !name.bytes().all(fit) {
            return Err(BuildError::Name { kind, name: name.clone() });
        }
    }
    check_unique(kind, names)
}

/// What extensions add is not the protocol's own, even where a server does not have that.
pub(crate) fn check_methods<'a>(
    mut names: impl Iterator<Item = &'a String> + Clone,
) -> Result<(), BuildError> {
    check_unique("method", names.clone())?;
    match names.find(|name| OF_PROTOCOL.contains(&name.as_str())) {
        Some(own) => Err(BuildError::Method(own.clone())),
        None => Ok(()),
    }
}

pub(crate) fn check_rules(
    rules: &CallOptions,
    is_guarded: bool,
    of: impl Fn() -> String,
) -> Result<(), BuildError> {
    if let Some(why) = &rules.wrong_form {
        return Err(BuildError::Form { of: of(), why: why.clone() });
    }
    if rules.version.number < rules.version.since {
        return Err(BuildError::Version(of()));
    }
    if rules.single_use && !is_guarded {
        return Err(BuildError::NoSingleUseStore(of()));
    }
    Ok(())
}

pub(crate) fn check_icons(of: &str, icons: &[Icon]) -> Result<(), BuildError> {
    let wrong = |why| BuildError::Icon { of: of.to_owned(), why };
    icons.iter().try_for_each(|icon| icon.validate().map_err(|why| wrong(why.into())))
}

/// Schemas are JSON Schema 2020-12, and whole: nobody fetches what they refer to (specification: basic,
/// "JSON Schema Usage").
pub(crate) fn check_dialect(schema: &Object) -> Result<(), String> {
    const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
    match schema.get("$schema").map(|dialect| dialect.as_str()) {
        None => {}
        Some(Some(dialect)) if dialect.trim_end_matches('#') == DIALECT => {}
        Some(other) => {
            return Err(format!("its dialect is {other:?}; only {DIALECT} is known here"));
        }
    }
    let mut rest: Vec<_> = schema.iter().collect();
    while let Some((keyword, value)) = rest.pop() {
        match value {
            Value::String(target) if keyword == "$ref" && uri::validate(target).is_ok() => {
                return Err(format!("it refers to {target}, which nobody fetches"));
            }
            // Data, not schemas.
            _ if matches!(keyword.as_str(), "const" | "default" | "enum" | "examples") => {}
            Value::Object(inner) => rest.extend(inner),
            Value::Array(items) => rest.extend(items.iter().filter_map(Value::as_object).flatten()),
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn check_unique<'a>(
    kind: &'static str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), BuildError> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(BuildError::Duplicate { kind, name: name.clone() });
        }
    }
    Ok(())
}
