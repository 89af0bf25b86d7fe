//! Forms from Rust types: converts the JSON Schema that `schemars` derives to the restricted schema
//! of the specification.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use mrtr_codec::Digest;
use mrtr_schema::Object;
use mrtr_schema::form::FormSchema;
use mrtr_schema::json::RawJson;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

/// Returns the form of a type.
///
/// Fields become form fields, in their order. Their doc comments become descriptions. An `Option`
/// is an optional field. An enum without data is a choice; a `Vec` or set of such an enum is a
/// multiple choice.
///
/// # Errors
///
/// The name of a field that the restricted schema cannot express, and the reason: for example, a
/// nested struct, a list of anything but choices, or a `pattern`. Check in the handler what a form
/// cannot express.
pub fn form_of<T: JsonSchema + 'static>() -> Result<Arc<FormSchema>, String> {
    cached_form::<T>().map(|form| Arc::clone(&form.schema))
}

/// A form, its JSON, and the digest of its JSON.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) schema: Arc<FormSchema>,
    pub(crate) text: RawJson,
    pub(crate) digest: Digest,
}

impl Form {
    pub(crate) fn new(schema: FormSchema) -> Result<Self, String> {
        let text = RawJson::new(&schema).map_err(|error| error.to_string())?;
        let digest = Digest::from_parts(&[text.as_str().as_bytes()]);
        Ok(Self { schema: Arc::new(schema), text, digest })
    }
}

/// Returns the form of a type, which is built once per process.
pub(crate) fn cached_form<T: JsonSchema + 'static>() -> Result<Arc<Form>, String> {
    type Cache = RwLock<BTreeMap<TypeId, Result<Arc<Form>, String>>>;
    static CACHE: OnceLock<Cache> = OnceLock::new();
    let (cache, id) = (CACHE.get_or_init(Cache::default), TypeId::of::<T>());
    let cached = cache.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
    cached.unwrap_or_else(|| {
        let form = restrict(schema_of::<T>()).and_then(Form::new).map(Arc::new);
        cache.write().unwrap_or_else(PoisonError::into_inner).insert(id, form.clone());
        form
    })
}

/// Returns the schema (JSON Schema 2020-12) of the JSON that deserializes to `T`.
pub(crate) fn schema_of<T: JsonSchema>() -> Object {
    generate_schema::<T>(SchemaSettings::draft2020_12())
}

/// Returns the schema (JSON Schema 2020-12) of the JSON that `T` serializes to.
pub(crate) fn output_schema_of<T: JsonSchema>() -> Object {
    generate_schema::<T>(SchemaSettings::draft2020_12().for_serialize())
}

/// Generates the schema of a type, without the dialect and without a default title.
///
/// The dialect is the protocol's default. The default title of schemars is the name of the type:
/// clients do not need it, and it would change when the type is renamed.
fn generate_schema<T: JsonSchema>(settings: SchemaSettings) -> Object {
    let settings = settings.with(|settings| settings.meta_schema = None);
    let titled = T::json_schema(&mut settings.clone().into_generator()).get("title").is_some();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    let mut schema = std::mem::take(schema.ensure_object());
    if !titled {
        schema.shift_remove("title");
    }
    schema
}

/// Keywords with rules that forms do not have. Without them, a form would ask for less than the
/// type requires.
const NOT_IN_FORMS: [&str; 9] = [
    "allOf",
    "const",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "if",
    "multipleOf",
    "not",
    "pattern",
    "patternProperties",
];

/// Returns an error if a schema has a keyword that forms do not have.
fn check_keywords(schema: &Object) -> Result<(), String> {
    match NOT_IN_FORMS.iter().find(|keyword| schema.contains_key(**keyword)) {
        Some(keyword) => Err(format!("a form cannot have `{keyword}`")),
        None => Ok(()),
    }
}

/// Converts the schema of a struct to a form.
fn restrict(mut schema: Object) -> Result<FormSchema, String> {
    let defs = match schema.shift_remove("$defs") {
        Some(Value::Object(defs)) => defs,
        _ => Object::new(),
    };
    if schema.get("type") != Some(&json!("object")) {
        return Err("a form must be a struct with named fields".to_owned());
    }
    // A flattened enum.
    if ["anyOf", "oneOf"].iter().any(|keyword| schema.contains_key(*keyword)) {
        return Err("a form cannot have alternatives".to_owned());
    }
    check_keywords(&schema)?;
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (name, property) in properties.iter_mut() {
            *property = restrict_property(property.take(), &defs)
                .map_err(|why| format!("field {name:?}: {why}"))?;
        }
    } else {
        schema.insert("properties".to_owned(), json!({}));
    }
    serde_json::from_value(Value::Object(schema)).map_err(|e| e.to_string())
}

/// Simplifies the schema of a field: resolves references, and drops the `null` of an `Option`.
/// [`FormSchema`] validates the result.
fn restrict_property(property: Value, defs: &Object) -> Result<Value, String> {
    let Value::Object(mut p) = property else {
        return Err("a form field must have a type".to_owned());
    };
    if let Some(Value::Array(any)) = p.get_mut("anyOf") {
        // An `Option` of an enum is an alternative of the enum and `null`.
        any.retain(|one| one.get("type") != Some(&json!("null")));
        let [one] = any.as_mut_slice() else {
            return Err("a form field cannot have alternatives".to_owned());
        };
        let one = one.take();
        p.shift_remove("anyOf");
        merge(&mut p, one);
    }
    let mut depth = 0;
    while let Some(Value::String(reference)) = p.shift_remove("$ref") {
        let target = reference.strip_prefix("#/$defs/").and_then(|name| defs.get(name)).cloned();
        merge(&mut p, target.ok_or_else(|| format!("unknown reference {reference:?}"))?);
        depth += 1;
        if depth > 8 {
            return Err("the references are circular, or nested more than 8 deep".to_owned());
        }
    }
    if let Some(Value::Array(kinds)) = p.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        let [kind] = kinds.as_mut_slice() else {
            return Err("a form field cannot have several types".to_owned());
        };
        let kind = kind.take();
        p.insert("type".to_owned(), kind);
    }
    if let Some(Value::Array(values)) = p.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if p.get("default").is_some_and(Value::is_null) {
        p.shift_remove("default");
    }
    if let Some(Value::Array(options)) = p.get_mut("oneOf") {
        // Each variant with a doc comment has an option of its own. All others share one, which is
        // split here.
        let all = std::mem::take(options).into_iter().flat_map(|one| match one.get("enum") {
            Some(Value::Array(values)) => {
                values.iter().map(|value| json!({ "const": value })).collect()
            }
            _ => vec![one],
        });
        options.extend(all);
        // The doc comment of a variant is its title for the user.
        for option in options.iter_mut().filter_map(Value::as_object_mut) {
            let title = option.shift_remove("title").or_else(|| option.shift_remove("description"));
            let title = title.or_else(|| option.get("const").cloned());
            option.extend(title.map(|title| ("title".to_owned(), title)));
        }
        p.insert("type".to_owned(), json!("string"));
    }
    if let Some(items) = p.get_mut("items") {
        let mut restricted = restrict_property(items.take(), defs)?;
        if let Some(options) = restricted.as_object_mut().and_then(|r| r.shift_remove("oneOf")) {
            restricted = json!({ "anyOf": options });
        }
        *items = restricted;
    }
    check_keywords(&p)?;
    Ok(Value::Object(p))
}

/// Adds the members of `target` that `p` does not have.
fn merge(p: &mut Object, target: Value) {
    if let Value::Object(target) = target {
        for (key, value) in target {
            p.entry(key).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemars::JsonSchema;
    use std::collections::BTreeMap;

    #[derive(JsonSchema)]
    #[serde(rename_all = "lowercase")]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Place {
        Inside,
        Outside,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Diet {
        /// No meat
        Vegetarian,
        /// No animal products
        Vegan,
        Anything,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Formats {
        #[schemars(email)]
        mail: String,
        #[schemars(url)]
        page: String,
        #[schemars(extend("format" = "uuid"))]
        id: String,
        #[schemars(extend("format" = "date-time"))]
        at: String,
    }

    #[test]
    fn unsupported_formats_are_left_out() {
        let form = serde_json::to_value(&*form_of::<Formats>().unwrap()).unwrap();
        let format = |field: &str| form["properties"][field].get("format").cloned();
        assert_eq!(format("mail"), Some("email".into()));
        assert_eq!(format("page"), Some("uri".into()));
        assert_eq!(format("at"), Some("date-time".into()));
        assert_eq!(format("id"), None);
    }

    #[derive(JsonSchema)]
    #[schemars(title = "Titled")]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Titled {
        place: Place,
    }

    #[test]
    fn schemas_have_explicit_titles_only() {
        assert_eq!(
            Value::Object(schema_of::<Titled>()),
            json!({
                "title": "Titled",
                "type": "object",
                "properties": { "place": { "$ref": "#/$defs/Place" } },
                "required": ["place"],
                "$defs": { "Place": { "type": "string", "enum": ["inside", "outside"] } },
            })
        );
        assert_eq!(
            output_schema_of::<Formats>().keys().collect::<Vec<_>>(),
            ["type", "properties", "required"]
        );
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Everything {
        /// Your name?
        #[schemars(length(min = 1, max = 80))]
        name: String,
        #[schemars(email)]
        mail: Option<String>,
        #[schemars(range(min = 1, max = 12))]
        people: u8,
        discount: Option<f64>,
        quiet: bool,
        place: Place,
        second_choice: Option<Place>,
        diets: Vec<Diet>,
    }

    #[test]
    fn form_of_supports_every_kind_of_field() {
        let form = form_of::<Everything>().unwrap();
        let written = serde_json::to_value(&*form).unwrap();
        assert_eq!(
            written,
            json!({
                "type": "object",
                "properties": {
                    "name": { "type": "string", "description": "Your name?", "minLength": 1, "maxLength": 80 },
                    "mail": { "type": "string", "format": "email" },
                    "people": { "type": "integer", "minimum": 1, "maximum": 12 },
                    "discount": { "type": "number" },
                    "quiet": { "type": "boolean" },
                    "place": { "type": "string", "enum": ["inside", "outside"] },
                    "second_choice": { "type": "string", "enum": ["inside", "outside"] },
                    "diets": { "type": "array", "items": { "anyOf": [
                        { "const": "Anything", "title": "Anything" },
                        { "const": "Vegetarian", "title": "No meat" },
                        { "const": "Vegan", "title": "No animal products" },

                    ] } },
                },
                "required": ["name", "people", "quiet", "place", "diets"],
            })
        );
        let names: Vec<_> = form.fields.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(
            names,
            ["name", "mail", "people", "discount", "quiet", "place", "second_choice", "diets"]
        );
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Nested {
        inner: Registry,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Registry {
        a: u8,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct List {
        names: Vec<String>,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Pin {
        #[schemars(regex(pattern = "^[0-9]{4}$"))]
        pin: String,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Even {
        #[schemars(extend("multipleOf" = 2))]
        n: Option<u8>,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Payment {
        Card { number: String },
        Invoice { address: String },
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Flattened {
        name: String,
        #[serde(flatten)]
        payment: Payment,
    }

    #[test]
    fn form_of_names_unsupported_fields() {
        for (form, part) in [
            (form_of::<Nested>(), "field \"inner\""),
            (form_of::<List>(), "field \"names\""),
            (form_of::<BTreeMap<String, String>>(), ""),
            (form_of::<String>(), "struct with named fields"),
            (form_of::<Pin>(), "field \"pin\": a form cannot have `pattern`"),
            (form_of::<Even>(), "field \"n\": a form cannot have `multipleOf`"),
            (form_of::<Flattened>(), "alternatives"),
        ] {
            if part.is_empty() {
                assert!(form.is_ok_and(|form| form.fields.is_empty()), "a map has no fields");
            } else {
                assert!(form.as_ref().is_err_and(|e| e.contains(part)), "{form:?}");
            }
        }
    }
}
