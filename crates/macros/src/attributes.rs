//! The arguments of the attributes, and the doc comment of a function.

use proc_macro2::Span;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, Ident, Lit, LitBool, LitStr, Meta, Token};

/// The kind of handler that an attribute makes of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Tool,
    Prompt,
    Resource,
    ResourceTemplate,
}

impl Kind {
    /// The name of the type in mrtr.
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Self::Tool => "Tool",
            Self::Prompt => "Prompt",
            Self::Resource => "Resource",
            Self::ResourceTemplate => "ResourceTemplate",
        }
    }

    /// The suffix of the constructor.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::ResourceTemplate => "resource_template",
        }
    }

    /// Returns true if the first attribute is a URI.
    pub(crate) fn has_uri(self) -> bool {
        matches!(self, Self::Resource | Self::ResourceTemplate)
    }

    fn allows(self, option: &str) -> bool {
        match option {
            "name" | "title" | "description" | "manual" => true,
            "mime_type" => self.has_uri(),
            _ => self == Self::Tool && ANNOTATIONS.contains(&option),
        }
    }
}

/// The annotations of a tool, by the names of their attributes.
pub(crate) const ANNOTATIONS: [&str; 4] = ["read_only", "destructive", "idempotent", "open_world"];

/// The arguments of one attribute.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) uri: Option<LitStr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) title: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    pub(crate) mime_type: Option<LitStr>,
    pub(crate) manual: bool,
    pub(crate) annotations: Vec<(Ident, LitBool)>,
}

impl Arguments {
    /// Parses the arguments that `kind` allows.
    pub(crate) fn parse(kind: Kind, input: ParseStream<'_>) -> syn::Result<Self> {
        let mut arguments = Self::default();
        if kind.has_uri() {
            let uri: LitStr = input.parse().map_err(|error| {
                syn::Error::new(error.span(), "expected the URI as the first argument")
            })?;
            arguments.uri = Some(uri);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        while !input.is_empty() {
            let option: Ident = input.parse()?;
            arguments.set(kind, &option, input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(arguments)
    }

    fn set(&mut self, kind: Kind, option: &Ident, input: ParseStream<'_>) -> syn::Result<()> {
        let name = option.to_string();
        if !kind.allows(&name) {
            let error = format!("unknown attribute `{name}` of #[{}]", kind.suffix());
            return Err(syn::Error::new(option.span(), error));
        }
        let text = |input| value::<LitStr>(input);
        match name.as_str() {
            "name" => self.name = Some(text(input)?),
            "title" => self.title = Some(text(input)?),
            "description" => self.description = Some(text(input)?),
            "mime_type" => self.mime_type = Some(text(input)?),
            "manual" => self.manual = true,
            _ => {
                let is_set = if input.peek(Token![=]) {
                    value(input)?
                } else {
                    LitBool::new(true, Span::call_site())
                };
                self.annotations.push((option.clone(), is_set));
            }
        }
        Ok(())
    }
}

fn value<T: Parse>(input: ParseStream<'_>) -> syn::Result<T> {
    input.parse::<Token![=]>()?;
    input.parse()
}

/// Returns the text of a doc comment, or `None` if there is none.
pub(crate) fn doc_comment(attributes: &[Attribute]) -> Option<String> {
    let lines: Vec<String> = attributes.iter().filter_map(doc_line).collect();
    let text = lines.join("\n").trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn doc_line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(meta) = &attribute.meta else { return None };
    if !meta.path.is_ident("doc") {
        return None;
    }
    let Expr::Lit(literal) = &meta.value else { return None };
    let Lit::Str(text) = &literal.lit else { return None };
    // `/// text` has a space before its text.
    let text = text.value();
    Some(text.strip_prefix(' ').unwrap_or(&text).trim_end().to_owned())
}
