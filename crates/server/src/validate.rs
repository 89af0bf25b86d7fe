//! The checks of `ServerBuilder::build`.

use std::collections::HashSet;
use std::time::Duration;

use mrtr_schema::content::Annotations;
use mrtr_schema::icon::Icon;
use mrtr_schema::tool::is_valid_name;
use mrtr_schema::{Object, uri};
use serde_json::Value;

use crate::build_error::BuildError;
use crate::call_options::CallOptions;
use crate::state::StateMap;

/// Checks that the name of a tool is valid (specification: tools, "Tool Names").
pub(crate) fn check_tool_name(name: &str) -> Result<(), BuildError> {
    if is_valid_name(name) { Ok(()) } else { Err(BuildError::ToolName(name.to_owned())) }
}

/// Checks the options of one handler; `of` names it.
pub(crate) fn check_options(
    options: &CallOptions,
    has_store: bool,
    state: &StateMap,
    of: impl Fn() -> String,
) -> Result<(), BuildError> {
    if let Some(why) = &options.form_error {
        return Err(BuildError::Form { of: of(), why: why.clone() });
    }
    if options.version.number < options.version.since {
        return Err(BuildError::Version(of()));
    }
    if options.single_use.is_on() && !has_store {
        return Err(BuildError::NoSingleUseStore(of()));
    }
    if let Some(missing) = options.missing_state(state) {
        return Err(BuildError::MissingState { of: of(), missing });
    }
    // Request states count whole seconds: with less than one, they would expire at once.
    let second = Duration::from_secs(1);
    for (option, is_valid, minimum) in [
        ("answer_timeout", options.answer_timeout >= second, "1 s"),
        ("call_timeout", options.call_timeout >= second, "1 s"),
        ("request_timeout", !options.request_timeout.is_zero(), "1 ns"),
        ("max_rounds", options.max_rounds > 0, "1"),
    ] {
        if !is_valid {
            return Err(BuildError::Timeout { of: of(), option, minimum });
        }
    }
    Ok(())
}

/// Checks the icons of one server, tool, prompt, resource or template; `of` names it.
pub(crate) fn check_icons(of: &str, icons: &[Icon]) -> Result<(), BuildError> {
    let wrong = |why| BuildError::Icon { of: of.to_owned(), why };
    icons.iter().try_for_each(|icon| icon.validate().map_err(|why| wrong(why.into())))
}

/// Validates the annotations of a resource or a resource template.
pub(crate) fn check_annotations(
    of: &str,
    annotations: Option<&Annotations>,
) -> Result<(), BuildError> {
    annotations.map_or(Ok(()), Annotations::validate).map_err(|why| {
        let (of, why) = (of.to_owned(), why.to_string());
        BuildError::Annotations { of, why }
    })
}

/// The supported dialects of JSON Schema: those that the feature `validate` knows. The last one is
/// the default.
const DIALECTS: [&str; 5] = [
    "http://json-schema.org/draft-04/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];

/// Checks that a schema has a supported dialect and no external references, which are never fetched
/// (specification: basic, "JSON Schema Usage").
pub(crate) fn check_dialect(schema: &Object) -> Result<(), String> {
    if let Some(dialect) = schema.get("$schema") {
        let name = dialect.as_str().map(|name| name.trim_end_matches('#'));
        if !name.is_some_and(|name| DIALECTS.contains(&name)) {
            let known = DIALECTS.join(", ");
            return Err(format!("unsupported dialect {dialect}: the supported ones are {known}"));
        }
    }
    let mut rest: Vec<_> = schema.iter().collect();
    while let Some((keyword, value)) = rest.pop() {
        match value {
            Value::String(target) if keyword == "$ref" && uri::validate(target).is_ok() => {
                return Err(format!(
                    "external reference {target:?}: references must be inside the schema"
                ));
            }
            // These contain data, not schemas.
            _ if matches!(keyword.as_str(), "const" | "default" | "enum" | "examples") => {}
            Value::Object(inner) => rest.extend(inner),
            Value::Array(items) => rest.extend(items.iter().filter_map(Value::as_object).flatten()),
            _ => {}
        }
    }
    Ok(())
}

/// Checks that names are unique.
pub(crate) fn check_unique<'a>(
    kind: &'static str,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), BuildError> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(BuildError::Duplicate { kind, name: name.to_owned() });
        }
    }
    Ok(())
}
