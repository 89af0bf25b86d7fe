//! Schemas of the document as JSON Schemas of arguments and of output.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use mrtr_schema::Object;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};

use crate::budget::{Budget, TooLong};
use crate::document::Document;

const COMPONENTS: &str = "#/components/schemas/";

/// The characters that fragments of URIs do not have (RFC 3986, section 3.5).
const OUTSIDE_FRAGMENTS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The longest schema, in bytes of JSON.
pub(crate) const MAX_SCHEMA: usize = 64 << 10;

/// How deeply schemas may be nested. Readers of JSON have such limits for the whole message.
const MAX_DEPTH: usize = 64;

/// How many levels of `allOf` are searched for properties of the other direction.
const MAX_ALL_OF: usize = 4;

/// Keywords whose values are data, not schemas.
const DATA: [&str; 6] = ["const", "default", "dependentRequired", "enum", "examples", "required"];

/// Keywords whose values are maps from names to schemas.
const MAPS: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/// Keywords without an effect on what is valid: for documentation, and for references by name,
/// which are not supported. Extensions (`x-…`) are left out, too: this server would follow
/// `x-mcp-header`.
const DROPPED: [&str; 7] =
    ["$anchor", "$dynamicAnchor", "$schema", "discriminator", "example", "externalDocs", "xml"];

/// Keywords that change where references lead.
const UNSUPPORTED: [&str; 3] = ["$dynamicRef", "$id", "$recursiveRef"];

/// Which way the values go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    /// In the arguments of a tool.
    Input,
    /// In the result of a tool.
    Output,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }

    /// Returns the keyword of properties that go only the other way.
    fn other_way(self) -> &'static str {
        match self {
            Self::Input => "readOnly",
            Self::Output => "writeOnly",
        }
    }
}

/// Converts schemas, and collects those that they refer to.
pub(crate) struct Schemas<'a> {
    document: &'a Document,
    direction: Direction,
    /// Names of referenced schemas.
    referenced: BTreeSet<String>,
    /// Where references lead: names, and pointers into the schemas with these names.
    targets: BTreeSet<String>,
    /// Approximate number of bytes that may still be converted.
    budget: Budget,
    /// The hidden properties of the schema whose `allOf` contains the next one.
    enclosing: Arc<HashSet<String>>,
}

impl<'a> Schemas<'a> {
    pub(crate) fn new(document: &'a Document, direction: Direction) -> Self {
        let (referenced, targets) = (BTreeSet::new(), BTreeSet::new());
        let budget = Budget(MAX_SCHEMA);
        Self { document, direction, referenced, targets, budget, enclosing: Arc::default() }
    }

    pub(crate) fn document(&self) -> &'a Document {
        self.document
    }

    /// Converts a schema.
    pub(crate) fn convert(&mut self, schema: &Value) -> Result<Value, String> {
        self.convert_value(schema, 0)
    }

    fn convert_value(&mut self, value: &Value, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("a schema is nested more than {MAX_DEPTH} levels deep"));
        }
        Ok(match value {
            Value::Object(object) => Value::Object(self.convert_object(object, depth)?),
            Value::Array(all) => {
                let all = all.iter().map(|one| self.convert_value(one, depth + 1));
                Value::Array(all.collect::<Result<_, _>>()?)
            }
            other => self.copy(other)?,
        })
    }

    /// Copies data.
    fn copy(&mut self, data: &Value) -> Result<Value, String> {
        self.budget.take_json(data).map_err(|TooLong| self.too_long())?;
        Ok(data.clone())
    }

    /// Limits the work for one tool.
    pub(crate) fn count(&mut self, bytes: usize) -> Result<(), String> {
        self.budget.take(bytes).map_err(|TooLong| self.too_long())
    }

    fn too_long(&self) -> String {
        let name = self.direction.name();
        format!("the {name} schema has more than {MAX_SCHEMA} bytes, or refers to itself too often")
    }

    fn convert_object(&mut self, schema: &Object, depth: usize) -> Result<Object, String> {
        let mut visits = 0;
        let hidden = self.hidden(schema, 0, &mut visits);
        self.count(visits)?;
        let enclosing = std::mem::take(&mut self.enclosing);
        let is_hidden = |name: &str| hidden.contains(name) || enclosing.contains(name);
        let mut converted = Object::new();
        for (key, value) in schema {
            let name = key.as_str();
            if DROPPED.contains(&name) || name.starts_with("x-") {
                continue;
            }
            self.count(key.len() + 4)?;
            let value = match value {
                Value::String(_) if UNSUPPORTED.contains(&name) => {
                    return Err(format!(
                        "a schema has the keyword {name:?}, which is not supported"
                    ));
                }
                Value::String(reference) if name == "$ref" => self.reference(reference)?,
                Value::Array(names) if name == "required" => {
                    let is_kept = |name: &&Value| !name.as_str().is_some_and(is_hidden);
                    self.copy(&names.iter().filter(is_kept).cloned().collect())?
                }
                data if DATA.contains(&name) => self.copy(data)?,
                Value::Array(parts) if name == "allOf" => {
                    let of_parts = hidden.iter().map(|name| (*name).to_owned());
                    let of_parts: HashSet<_> = of_parts.chain(enclosing.iter().cloned()).collect();
                    let of_parts = Arc::new(of_parts);
                    let document = self.document;
                    let parts = parts.iter().map(|part| {
                        self.enclosing = Arc::clone(&of_parts);
                        self.convert_value(inlined(document, part, &of_parts), depth + 2)
                    });
                    let parts = Value::Array(parts.collect::<Result<_, _>>()?);
                    self.enclosing = Arc::default();
                    parts
                }
                Value::Object(map) if MAPS.contains(&name) => {
                    let mut schemas = Object::new();
                    for (name, schema) in map {
                        if key == "properties" && is_hidden(name) {
                            continue;
                        }
                        self.count(name.len() + 4)?;
                        schemas.insert(name.clone(), self.convert_value(schema, depth + 1)?);
                    }
                    Value::Object(schemas)
                }
                value => self.convert_value(value, depth + 1)?,
            };
            converted.insert(key.clone(), value);
        }
        if self.document.is_3_0 {
            upgrade(&mut converted);
        }
        Ok(converted)
    }

    fn reference(&mut self, reference: &str) -> Result<Value, String> {
        let name = reference.strip_prefix(COMPONENTS).ok_or_else(|| {
            format!("the schema reference {reference:?} must start with {COMPONENTS:?}")
        })?;
        let name = percent_decode_str(name).decode_utf8_lossy();
        let first = name.split('/').next().unwrap_or_default();
        self.referenced.insert(first.to_owned());
        self.targets.insert(name.clone().into_owned());
        let encoded = utf8_percent_encode(&name, OUTSIDE_FRAGMENTS);
        self.copy(&Value::String(format!("#/$defs/{encoded}")))
    }

    /// Returns the names of properties that go only the other way. If the schema has parts or
    /// requires names, also those of its parts and of the schema that it refers to.
    fn hidden<'s>(&self, schema: &'s Object, level: usize, visits: &mut usize) -> HashSet<&'s str>
    where
        'a: 's,
    {
        let resolved = |schema: &'s Value| self.document.resolve(schema).unwrap_or(schema);
        let mut names = HashSet::new();
        if let Some(Value::Object(properties)) = schema.get("properties") {
            let keyword = self.direction.other_way();
            let is_hidden = |schema: &Value| schema.get(keyword) == Some(&Value::Bool(true));
            *visits += properties.len();
            let properties = (*visits <= MAX_SCHEMA).then_some(properties);
            let hidden = properties
                .into_iter()
                .flatten()
                .filter(|(_, schema)| is_hidden(schema) || is_hidden(resolved(schema)));
            names.extend(hidden.map(|(name, _)| name.as_str()));
        }
        if level == MAX_ALL_OF || level == 0 && !combines(schema) {
            return names;
        }
        let target = schema.get("$ref").and_then(Value::as_str);
        let target = target.and_then(|target| self.document.at(target).ok()).map(resolved);
        for part in parts_of(schema).map(resolved).chain(target).filter_map(Value::as_object) {
            *visits += 1;
            if *visits > MAX_SCHEMA {
                // Parts may refer to the whole, many times. The schema is refused.
                break;
            }
            names.extend(self.hidden(part, level + 1, visits));
        }
        names
    }

    /// Adds the definitions of all schemas that were referred to, and checks the whole.
    pub(crate) fn complete(mut self, mut schema: Object) -> Result<Object, String> {
        let definitions = Value::Object(self.definitions()?);
        self.check_references(&definitions)?;
        if definitions != json!({}) {
            schema.insert("$defs".to_owned(), definitions);
        }
        Budget(MAX_SCHEMA).take_json(&schema).map_err(|TooLong| self.too_long())?;
        check_schema(&mut schema)?;
        Ok(schema)
    }

    fn definitions(&mut self) -> Result<Object, String> {
        let mut definitions = Object::new();
        while let Some(name) = self.referenced.pop_first() {
            if definitions.contains_key(&name) {
                continue;
            }
            let schema = self.document.schema(&name)?;
            let converted = self.convert(schema)?;
            definitions.insert(name, converted);
        }
        Ok(definitions)
    }

    /// Checks that all references lead to something in the definitions.
    fn check_references(&self, definitions: &Value) -> Result<(), String> {
        let is_lost = |target: &&String| definitions.pointer(&format!("/{target}")).is_none();
        match self.targets.iter().find(is_lost) {
            Some(target) => {
                let (reference, name) = (format!("{COMPONENTS}{target}"), self.direction.name());
                Err(format!(
                    "the schema reference {reference:?} has no target in the {name} schema"
                ))
            }
            None => Ok(()),
        }
    }
}

/// Returns true if a schema has parts or requires properties, so that what one part declares
/// concerns another.
fn combines(schema: &Object) -> bool {
    schema.contains_key("required") || schema.contains_key("allOf")
}

/// Returns the schema that a part refers to, if it requires a hidden property: elsewhere, the same
/// schema may stand without the part that hides it.
fn inlined<'s>(document: &'s Document, part: &'s Value, hidden: &HashSet<String>) -> &'s Value {
    let is_hidden = |name: &Value| name.as_str().is_some_and(|name| hidden.contains(name));
    let requires_hidden = |schema: &&Value| {
        let required = schema.get("required").and_then(Value::as_array);
        required.is_some_and(|names| names.iter().any(is_hidden))
    };
    let is_reference = part.as_object().is_some_and(|part| part.len() == 1);
    let target = document.resolve(part).ok().filter(|_| is_reference);
    target.filter(requires_hidden).unwrap_or(part)
}

/// Returns the parts of a schema in `allOf`.
fn parts_of(schema: &Object) -> impl Iterator<Item = &Value> {
    schema.get("allOf").and_then(Value::as_array).into_iter().flatten()
}

/// Converts keywords of OpenAPI 3.0 to JSON Schema 2020-12.
fn upgrade(schema: &mut Object) {
    if schema.remove("nullable") == Some(Value::Bool(true)) {
        if let Some(Value::Array(values)) = schema.get_mut("enum")
            && !values.contains(&Value::Null)
        {
            values.push(Value::Null);
        }
        // `nullable` beside a reference or a composition has no type.
        let is_composed =
            ["allOf", "anyOf", "oneOf", "$ref"].iter().any(|key| schema.contains_key(*key));
        match schema.get_mut("type") {
            Some(kind @ Value::String(_)) => *kind = json!([kind.take(), "null"]),
            None if is_composed => {
                let inner = std::mem::take(schema);
                schema.insert("anyOf".to_owned(), json!([inner, { "type": "null" }]));
            }
            _ => {}
        }
    }
    for (flag, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        match schema.get(flag) {
            Some(Value::Bool(true)) => match schema.remove(limit) {
                Some(value) => drop(schema.insert(flag.to_owned(), value)),
                None => drop(schema.remove(flag)),
            },
            Some(Value::Bool(false)) => drop(schema.remove(flag)),
            _ => {}
        }
    }
}

/// Checks that the schema is one that a server can validate values by. If a pattern is not,
/// patterns are left out.
#[cfg(feature = "validate")]
fn check_schema(schema: &mut Object) -> Result<(), String> {
    use mrtr_schema::json_schema::Validator;

    if Validator::new(schema).is_ok() {
        return Ok(());
    }
    let mut whole = Value::Object(std::mem::take(schema));
    leave_out_patterns(&mut whole);
    if let Value::Object(whole) = whole {
        *schema = whole;
    }
    Validator::new(schema).map(drop).map_err(|error| format!("invalid schema: {error}"))
}

#[cfg(feature = "validate")]
fn leave_out_patterns(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            // A property may have this name, but its schema is not a string.
            if members.get("pattern").is_some_and(Value::is_string) {
                members.remove("pattern");
            }
            members.values_mut().for_each(leave_out_patterns);
        }
        Value::Array(all) => all.iter_mut().for_each(leave_out_patterns),
        _ => {}
    }
}

#[cfg(not(feature = "validate"))]
#[expect(clippy::unnecessary_wraps, reason = "the other version may fail")]
fn check_schema(_: &mut Object) -> Result<(), String> {
    Ok(())
}
