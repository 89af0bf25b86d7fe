//! The restricted JSON Schema of forms: flat objects of strings, numbers, booleans and choices
//! (specification: client, "Requested Schema").

mod coerce;
mod encoding;
mod validate;

use serde_json::Number;

use crate::setters::setters;

pub use validate::{FieldError, FormError};

/// A form: fields in the order in which a client shows them.
///
/// # Example
///
/// ```
/// use mrtr_schema::form::{Field, FormSchema};
/// use serde_json::{Value, json};
///
/// let form = FormSchema::new([
///     Field::integer("people").with_description("Number of guests"),
///     Field::text("note").optional(),
/// ]);
/// let object = |value: Value| value.as_object().cloned().unwrap();
///
/// // Members that the form does not ask for are removed.
/// let content = form.validate(object(json!({ "people": 4, "admin": true })))?;
/// assert_eq!(Value::Object(content), json!({ "people": 4 }));
///
/// let error = form.validate(object(json!({ "people": "four" }))).unwrap_err();
/// assert_eq!(error.to_string(), "people: must be a number");
///
/// assert_eq!(
///     serde_json::to_value(&form).unwrap()["properties"]["people"],
///     json!({ "type": "integer", "description": "Number of guests" }),
/// );
/// # Ok::<(), mrtr_schema::form::FormError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct FormSchema {
    /// The fields.
    pub fields: Vec<Field>,
}

/// A field of a form.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Field {
    /// The key in the content.
    pub name: String,
    /// The display name.
    pub title: Option<String>,
    /// The description.
    pub description: Option<String>,
    /// True if the field must be filled in.
    pub required: bool,
    /// The type of the field, with its limits and its default.
    pub kind: FieldKind,
}

/// The type of a field, with its limits and its default.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FieldKind {
    /// Text.
    #[non_exhaustive]
    Text {
        /// The minimum number of characters.
        min_length: Option<u64>,
        /// The maximum number of characters.
        max_length: Option<u64>,
        /// The format, if it is one that the specification defines.
        format: Option<Format>,
        /// The default.
        default: Option<String>,
    },
    /// A number.
    #[non_exhaustive]
    Number {
        /// True if the number must be an integer.
        integer: bool,
        /// The minimum.
        minimum: Option<Number>,
        /// The maximum.
        maximum: Option<Number>,
        /// The default.
        default: Option<Number>,
    },
    /// A boolean.
    #[non_exhaustive]
    Boolean {
        /// The default.
        default: Option<bool>,
    },
    /// One of several options.
    #[non_exhaustive]
    Choice {
        /// The options.
        options: Vec<ChoiceOption>,
        /// The value of the default option.
        default: Option<String>,
        /// True if titles are written as `enumNames`: the notation of earlier revisions, which the
        /// current one still allows.
        enum_names: bool,
    },
    /// Any number of several options.
    #[non_exhaustive]
    Choices {
        /// The options.
        options: Vec<ChoiceOption>,
        /// The minimum number of chosen options.
        min_items: Option<u64>,
        /// The maximum number of chosen options.
        max_items: Option<u64>,
        /// The values of the default options.
        default: Option<Vec<String>>,
    },
}

/// An option of a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChoiceOption {
    /// The value in the content.
    pub value: String,
    /// The display name, if it differs from the value.
    pub title: Option<String>,
}

impl ChoiceOption {
    /// Creates an option that is shown as its value.
    pub fn new(value: impl Into<String>) -> Self {
        Self { value: value.into(), title: None }
    }
}

setters!(ChoiceOption { with_title(title: String) });

/// The format of a text field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// `email`
    Email,
    /// `uri`
    Uri,
    /// `date`, as in RFC 3339
    Date,
    /// `date-time`, as in RFC 3339
    DateTime,
}

impl Format {
    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Uri => "uri",
            Self::Date => "date",
            Self::DateTime => "date-time",
        }
    }

    /// Returns the format with this name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Email, Self::Uri, Self::Date, Self::DateTime];
        all.into_iter().find(|format| format.as_str() == name)
    }
}

impl Field {
    /// Creates a required field.
    pub fn new(name: impl Into<String>, kind: FieldKind) -> Self {
        Self { name: name.into(), title: None, description: None, required: true, kind }
    }

    /// Creates a required text field without limits.
    pub fn text(name: impl Into<String>) -> Self {
        Self::new(
            name,
            FieldKind::Text { min_length: None, max_length: None, format: None, default: None },
        )
    }

    /// Creates a required field for a number without limits.
    pub fn number(name: impl Into<String>) -> Self {
        Self::new(
            name,
            FieldKind::Number { integer: false, minimum: None, maximum: None, default: None },
        )
    }

    /// Creates a required field for an integer without limits.
    pub fn integer(name: impl Into<String>) -> Self {
        Self::new(
            name,
            FieldKind::Number { integer: true, minimum: None, maximum: None, default: None },
        )
    }

    /// Creates a required boolean field.
    pub fn boolean(name: impl Into<String>) -> Self {
        Self::new(name, FieldKind::Boolean { default: None })
    }

    /// Creates a required field for one of several options.
    pub fn choice(name: impl Into<String>, options: Vec<ChoiceOption>) -> Self {
        Self::new(name, FieldKind::Choice { options, default: None, enum_names: false })
    }

    /// Creates a required field for any number of several options.
    pub fn choices(name: impl Into<String>, options: Vec<ChoiceOption>) -> Self {
        Self::new(
            name,
            FieldKind::Choices { options, min_items: None, max_items: None, default: None },
        )
    }

    /// Makes the field optional.
    pub fn optional(mut self) -> Self {
        self.required = false;
        self
    }
}

setters!(Field { with_title(title: String), with_description(description: String) });

impl FormSchema {
    /// Creates a form from its fields.
    pub fn new(fields: impl IntoIterator<Item = Field>) -> Self {
        Self { fields: fields.into_iter().collect() }
    }

    /// Returns the field with this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }
}
