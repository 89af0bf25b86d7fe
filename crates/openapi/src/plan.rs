//! What an operation needs from its arguments, and their schema.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};
use mrtr_schema::Object;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::credentials::Credentials;
use crate::document::Document;
use crate::files::schema_with_files;
use crate::form::FormEncoding;
use crate::media_type::{essence, is_form, is_json, is_multipart, is_range};
use crate::multipart::MultipartEncoding;
use crate::operation::{Operation, allowed_name};
use crate::output_schema::OutputSchema;
use crate::parameter::{Location, Parameter};
use crate::schema::{Direction, Schemas};

/// The most parameters of an operation.
const MAX_PARAMETERS: usize = 256;

/// The longest name of a parameter, in bytes.
const MAX_NAME: usize = 1 << 10;

/// Headers that are not for the model to set. Declarations of the first three are ignored (OpenAPI
/// 3.1, section 4.8.12).
const RESERVED_HEADERS: [&str; 29] = [
    "accept",
    "content-type",
    "authorization",
    "cf-connecting-ip",
    "connection",
    "content-encoding",
    "content-length",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "idempotency-key",
    "keep-alive",
    "origin",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "true-client-ip",
    "upgrade",
    "via",
    "x-client-ip",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-real-ip",
    "x-rewrite-url",
];

/// Returns true if the model may set the header.
fn is_settable(name: &str) -> bool {
    HeaderName::try_from(name).is_ok_and(|name| {
        !RESERVED_HEADERS.contains(&name.as_str()) && !name.as_str().starts_with("x-forwarded-")
    })
}

/// An operation that can become a tool.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) operation: Operation,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) body: Option<Body>,
    /// Requests have an idempotency key.
    pub(crate) has_key: bool,
    /// What responses are checked against.
    pub(crate) output: Option<OutputSchema>,
}

#[derive(Debug)]
pub(crate) struct Body {
    /// The name of the argument.
    pub(crate) argument: String,
    pub(crate) content_type: HeaderValue,
    pub(crate) format: BodyFormat,
}

#[derive(Debug)]
pub(crate) enum BodyFormat {
    Json,
    Form(FormEncoding),
    Multipart(MultipartEncoding),
}

impl BodyFormat {
    /// Reads a media type object.
    fn new(content_type: &str, media: &Value, is_3_0: bool) -> Result<Self, String> {
        Ok(if is_json(content_type) {
            Self::Json
        } else if is_form(content_type) {
            Self::Form(FormEncoding::new(media)?)
        } else {
            Self::Multipart(MultipartEncoding::new(media, is_3_0)?)
        })
    }
}

impl Plan {
    /// Plans an operation with its path item and its operation object. Returns also the schema of
    /// the arguments, or the reason if it cannot become a tool.
    pub(crate) fn new(
        document: &Document,
        credentials: &Arc<Credentials>,
        operation: &Operation,
        item: &Value,
        object: &Value,
    ) -> Result<(Self, Object), String> {
        if operation.method == Method::TRACE {
            return Err(
                "a response to TRACE would contain the request, with its credentials".to_owned()
            );
        }
        let declared = declared_parameters(document, item, object)?;
        let mut planning = Planning {
            operation,
            credentials,
            schemas: Schemas::new(document, Direction::Input),
            properties: Object::new(),
            required: Vec::new(),
        };
        let mut has_key = [Method::POST, Method::PATCH].contains(&operation.method);
        let mut parameters = Vec::new();
        for parameter in declared {
            has_key |= is_idempotency_key(parameter);
            parameters.extend(planning.parameter(parameter)?);
        }
        let body = match object.get("requestBody") {
            Some(body) => planning.body(document.resolve(body)?)?,
            None => None,
        };
        check_path(&operation.path, &parameters)?;
        let Planning { schemas, properties, required, .. } = planning;
        let mut schema = Object::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), properties.into());
        if !required.is_empty() {
            schema.insert("required".to_owned(), required.into());
        }
        schema.insert("additionalProperties".to_owned(), false.into());
        let schema = schemas.complete(schema)?;
        let (operation, credentials) = (operation.clone(), Arc::clone(credentials));
        let output = None;
        Ok((Self { operation, parameters, credentials, body, has_key, output }, schema))
    }

    /// Checks responses against the schema of the document from now on, and returns it. Returns
    /// `None` if there is no usable one.
    pub(crate) fn add_output(&mut self, document: &Document, object: &Value) -> Option<Object> {
        let operation = &self.operation;
        let why = match OutputSchema::new(document, &operation.method, object) {
            Ok(Some((checks, schema))) => {
                self.output = Some(checks);
                return Some(schema);
            }
            Ok(None) => "none or not all of its successful responses are JSON".to_owned(),
            Err(why) => why,
        };
        tracing::warn!(target: "mrtr::openapi", %operation, why, "a tool has no output schema");
        None
    }
}

fn is_idempotency_key(parameter: &Value) -> bool {
    let has = |key, value: &str| {
        let text = parameter.get(key).and_then(Value::as_str);
        text.is_some_and(|text| text.eq_ignore_ascii_case(value))
    };
    has("in", "header") && has("name", "idempotency-key")
}

/// Returns the parameters of an operation. Its own override those of the path item that have the
/// same name and location.
fn declared_parameters<'a>(
    document: &'a Document,
    item: &'a Value,
    object: &'a Value,
) -> Result<Vec<&'a Value>, String> {
    let list =
        |value: &'a Value| value.get("parameters").and_then(Value::as_array).into_iter().flatten();
    let key = |parameter: &Value| {
        let name = parameter.get("name").and_then(Value::as_str).unwrap_or_default();
        let location = parameter.get("in").and_then(Value::as_str).unwrap_or_default();
        // Names of headers have no case.
        let name = if location == "header" { name.to_ascii_lowercase() } else { name.to_owned() };
        (name, location.to_owned())
    };
    let mut all: Vec<(_, &Value)> = Vec::new();
    for (at, parameter) in list(item).chain(list(object)).enumerate() {
        if at == MAX_PARAMETERS {
            return Err(format!("the operation has more than {MAX_PARAMETERS} parameters"));
        }
        let parameter = document.resolve(parameter)?;
        let name = parameter.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.len() > MAX_NAME {
            return Err(format!("the name of a parameter has more than {MAX_NAME} bytes"));
        }
        let key = key(parameter);
        all.retain(|(other, _)| *other != key);
        all.push((key, parameter));
    }
    Ok(all.into_iter().map(|(_, parameter)| parameter).collect())
}

struct Planning<'a> {
    operation: &'a Operation,
    credentials: &'a Credentials,
    schemas: Schemas<'a>,
    properties: Object,
    required: Vec<Value>,
}

impl Planning<'_> {
    /// Adds a parameter. Returns `None` if it is left out.
    fn parameter(&mut self, parameter: &Value) -> Result<Option<Parameter>, String> {
        let text = |key: &str| parameter.get(key).and_then(Value::as_str);
        let (Some(name), Some(location_name)) = (text("name"), text("in")) else {
            return Err("a parameter has no `name` or no `in`".to_owned());
        };
        let is_required = parameter.get("required") == Some(&Value::Bool(true));
        let location = Location::new(location_name)
            .filter(|location| *location != Location::Header || is_settable(name));
        if location.is_some_and(|location| self.credentials.contains(location, name)) {
            return Ok(None);
        }
        let Some(location) = location else {
            if is_required && location_name != "header" {
                return Err(format!(
                    "the required parameter {name:?} is in {location_name:?}, which is not supported"
                ));
            }
            return Ok(None);
        };
        let (style, explode) = Parameter::style(parameter, location)
            .map_err(|why| format!("parameter {name:?} in {location_name}: {why}"))?;
        let content = parameter.get("content").and_then(Value::as_object);
        let schema = match content.and_then(|content| content.values().next()) {
            Some(media) => self.schemas.document().resolve(media)?.get("schema"),
            None => parameter.get("schema"),
        };
        let is_required = is_required || location == Location::Path;
        let argument =
            self.argument(name, location.name(), schema, text("description"), is_required)?;
        let name = name.to_owned();
        Ok(Some(Parameter { argument, name, location, style, explode, is_required }))
    }

    /// Adds the body. Returns `None` if it is optional and cannot be sent.
    fn body(&mut self, body: &Value) -> Result<Option<Body>, String> {
        let is_required = body.get("required") == Some(&Value::Bool(true));
        let content = body.get("content").and_then(Value::as_object);
        // With the name of a media type, if there is one, and the simplest.
        let rank = |kind: &str| (is_range(kind), essence(kind) != "application/json");
        let find = |is: fn(&str) -> bool| {
            content?.iter().filter(|(kind, _)| is(kind)).min_by_key(|(kind, _)| rank(kind))
        };
        let found = find(is_json).or_else(|| find(is_form)).or_else(|| find(is_multipart));
        let Some((content_type, media)) = found else {
            return if is_required {
                Err("the required request body is neither JSON, application/x-www-form-urlencoded \
                     nor multipart/form-data"
                    .to_owned())
            } else {
                Ok(None)
            };
        };
        let document = self.schemas.document();
        // OpenAPI 3.2 has references here, too.
        let media = document.resolve(media)?;
        let mut format = match BodyFormat::new(content_type, media, document.is_3_0) {
            Ok(format) => format,
            Err(why) if is_required => return Err(why),
            Err(why) => {
                let operation = self.operation;
                tracing::warn!(target: "mrtr::openapi", %operation, why, "unsupported optional request body left out");
                return Ok(None);
            }
        };
        let schema = media.get("schema");
        let with_files = match (&mut format, schema) {
            (BodyFormat::Multipart(encoding), Some(schema)) => {
                schema_with_files(document, schema, encoding)?
            }
            _ => None,
        };
        let content_type = if is_range(content_type) { "application/json" } else { content_type };
        let content_type = HeaderValue::from_str(content_type)
            .map_err(|_| format!("the media type {content_type:?} is invalid"))?;
        let description = body.get("description").and_then(Value::as_str);
        let schema = with_files.as_ref().or(schema);
        let argument = self.argument("body", "request", schema, description, is_required)?;
        Ok(Some(Body { argument, content_type, format }))
    }

    /// Adds an argument, and returns its name.
    fn argument(
        &mut self,
        name: &str,
        location: &str,
        schema: Option<&Value>,
        description: Option<&str>,
        is_required: bool,
    ) -> Result<String, String> {
        let name: String = allowed_name(name).collect();
        let with_location = format!("{location}_{name}");
        let numbered = (2..).map(|number| format!("{with_location}_{number}"));
        let mut names = [name, with_location.clone()].into_iter().chain(numbered);
        let is_free = |name: &String| !self.properties.contains_key(name);
        let argument = names.find(is_free).unwrap_or(with_location);
        let mut schema = match schema {
            Some(schema) => self.schemas.convert(schema)?,
            None => json!({}),
        };
        if let (Value::Object(schema), Some(description)) = (&mut schema, description)
            && !schema.contains_key("description")
        {
            self.schemas.count(description.len())?;
            schema.insert("description".to_owned(), description.into());
        }
        self.properties.insert(argument.clone(), schema);
        if is_required {
            self.required.push(argument.clone().into());
        }
        Ok(argument)
    }
}

/// Checks that the path is one of a URL, and that each of its variables has a parameter.
fn check_path(path: &str, parameters: &[Parameter]) -> Result<(), String> {
    let mut filled = path.to_owned();
    for parameter in parameters.iter().filter(|parameter| parameter.location == Location::Path) {
        filled = filled.replace(&format!("{{{}}}", parameter.name), "x");
    }
    if filled.contains(['{', '}']) {
        return Err("the path has a variable without a path parameter".to_owned());
    }
    // The characters of a path (RFC 3986, section 3.3): a client would rewrite others.
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:@".contains(c);
    if !filled.chars().all(is_allowed) || leaves(&filled) {
        return Err("the path contains a dot segment, or a character that is not allowed in paths"
            .to_owned());
    }
    Ok(())
}

/// Returns true if a client or a server might take a segment for `.` or `..`: also after decoding
/// it, with backslashes as separators, or without parameters that begin with a semicolon.
pub(crate) fn leaves(path: &str) -> bool {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    decoded.split(['/', '\\']).any(|segment| {
        let name = segment.split(';').next().unwrap_or_default();
        name == "." || name == ".."
    })
}
