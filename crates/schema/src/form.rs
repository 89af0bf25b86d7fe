//! The restricted JSON Schema of forms: flat objects of strings, numbers, booleans and choices
//! (specification: client, "Requested Schema").

mod coerce;
mod encoding;
mod validate;

use serde_json::Number;

pub use validate::{Problem, Problems};

/// A form: fields in the order in which a person should see them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FormSchema {
    /// The fields.
    pub fields: Vec<Field>,
}

/// A field of a form.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Its key in the answer.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What is asked for.
    pub description: Option<String>,
    /// Whether it must be filled in.
    pub required: bool,
    /// What may be filled in.
    pub kind: FieldKind,
}

/// What may be filled into a field.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FieldKind {
    /// Text.
    Text {
        /// At least how many characters.
        min_length: Option<u64>,
        /// At most how many characters.
        max_length: Option<u64>,
        /// The format, if it is one of the four that the specification knows.
        format: Option<Format>,
        /// What stands there at first.
        default: Option<String>,
    },
    /// A number.
    Number {
        /// Whether it must be whole.
        integer: bool,
        /// At least.
        minimum: Option<Number>,
        /// At most.
        maximum: Option<Number>,
        /// What stands there at first.
        default: Option<Number>,
    },
    /// Yes or no.
    Boolean {
        /// What stands there at first.
        default: Option<bool>,
    },
    /// One of several.
    Choice {
        /// What there is to choose from.
        options: Vec<ChoiceOption>,
        /// What is chosen at first.
        default: Option<String>,
    },
    /// Any number of several.
    Choices {
        /// What there is to choose from.
        options: Vec<ChoiceOption>,
        /// At least how many.
        min_items: Option<u64>,
        /// At most how many.
        max_items: Option<u64>,
        /// What is chosen at first.
        default: Option<Vec<String>>,
    },
}

/// One thing to choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChoiceOption {
    /// What goes into the answer.
    pub value: String,
    /// What a person sees, if it is not the value itself.
    pub title: Option<String>,
}

/// The formats of text fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Uri => "uri",
            Self::Date => "date",
            Self::DateTime => "date-time",
        }
    }

    /// The format with this name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Email, Self::Uri, Self::Date, Self::DateTime].into_iter().find(|f| f.name() == name)
    }
}

impl Field {
    /// A required field.
    pub fn new(name: impl Into<String>, kind: FieldKind) -> Self {
        Self { name: name.into(), title: None, description: None, required: true, kind }
    }

    /// A required text field without limits.
    pub fn text(name: impl Into<String>) -> Self {
        Self::new(
            name,
            FieldKind::Text { min_length: None, max_length: None, format: None, default: None },
        )
    }

    /// A required yes-or-no field.
    pub fn boolean(name: impl Into<String>) -> Self {
        Self::new(name, FieldKind::Boolean { default: None })
    }

    /// Adds a description.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = Some(text.into());
        self
    }

    /// Makes the field optional.
    pub fn optional(mut self) -> Self {
        self.required = false;
        self
    }
}

impl FormSchema {
    /// A form with these fields.
    pub fn new(fields: impl IntoIterator<Item = Field>) -> Self {
        Self { fields: fields.into_iter().collect() }
    }

    /// The field with this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }
}
