//! The arguments of the attributes, and the doc comment of a function.

use proc_macro2::{Span, TokenTree};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Attribute, Expr, ExprLit, Ident, Lit, LitBool, LitStr, Meta, Path, Token};

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
            "name" | "title" | "description" | "manual" | "crate" => true,
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
    /// The path of `mrtr`, if it has another name.
    pub(crate) mrtr: Option<Path>,
    pub(crate) annotations: Vec<(Ident, LitBool)>,
    seen: Vec<String>,
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
            let option = Ident::parse_any(input)?;
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
        if self.seen.contains(&name) {
            let error = format!("attribute `{name}` occurs twice");
            return Err(syn::Error::new(option.span(), error));
        }
        self.seen.push(name.clone());
        match name.as_str() {
            "name" => self.name = Some(text(input)?),
            "title" => self.title = Some(text(input)?),
            "description" => self.description = Some(text(input)?),
            "mime_type" => self.mime_type = Some(text(input)?),
            "manual" => self.manual = true,
            "crate" => self.mrtr = Some(text(input)?.parse()?),
            _ => {
                let is_set = if input.peek(Token![=]) {
                    value(input)?
                } else {
                    LitBool::new(true, Span::call_site())
                };
                self.annotations.push((option.clone(), is_set));
                let is = |name| self.annotations.iter().any(|(n, set)| n == name && set.value);
                if is("read_only") && is("destructive") {
                    let error = "a read-only tool is not destructive";
                    return Err(syn::Error::new(option.span(), error));
                }
            }
        }
        Ok(())
    }
}

fn value<T: Parse>(input: ParseStream<'_>) -> syn::Result<T> {
    input.parse::<Token![=]>()?;
    input.parse()
}

/// Parses a text that is not empty.
fn text(input: ParseStream<'_>) -> syn::Result<LitStr> {
    let text: LitStr = value(input)?;
    if text.value().trim().is_empty() {
        return Err(syn::Error::new(text.span(), "the text is empty"));
    }
    Ok(text)
}

/// Returns the text of a doc comment, or `None` if there is none.
///
/// # Errors
///
/// If a part of it is not a string literal, such as `include_str!("doc.md")`.
pub(crate) fn doc_comment(attributes: &[Attribute]) -> syn::Result<Option<String>> {
    let mut lines = Vec::new();
    for attribute in attributes {
        let Meta::NameValue(meta) = &attribute.meta else { continue };
        if !meta.path.is_ident("doc") {
            continue;
        }
        match &meta.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => lines.push(doc_text(&text.value())),
            other => {
                let error = "the doc comment is not a string literal: set `description = \"…\"`";
                return Err(syn::Error::new(other.span(), error));
            }
        }
    }
    let text = lines.join("\n").trim().to_owned();
    Ok((!text.is_empty()).then_some(text))
}

/// Checks that no `cfg_attr` hides an attribute that the macro has to see.
pub(crate) fn check_cfg_attr(attributes: &[Attribute]) -> syn::Result<()> {
    // `cfg_attr(predicate, attribute, …)`
    let list = |input: ParseStream<'_>| {
        while !input.is_empty() && !input.peek(Token![,]) {
            input.parse::<TokenTree>()?;
        }
        input.parse::<Token![,]>()?;
        Punctuated::<Meta, Token![,]>::parse_terminated(input)
    };
    let is_hidden = |meta: &Meta| {
        let is = |name| meta.path().is_ident(name);
        let is_description = is("doc") && matches!(meta, Meta::NameValue(_));
        is("cfg") || is("cfg_attr") || is("deprecated") || is_description
    };
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("cfg_attr")) {
        if attribute.parse_args_with(list)?.iter().any(is_hidden) {
            let error = "put this attribute above the macro, which then sees what it expands to";
            return Err(syn::Error::new(attribute.span(), error));
        }
    }
    Ok(())
}

/// Returns the text of `/// text`, or of a block comment.
fn doc_text(comment: &str) -> String {
    // The lines of a block comment may begin with an asterisk, except for the first one.
    let mut rest = comment.lines().skip(1).filter(|line| !line.trim().is_empty()).peekable();
    let is_block = comment.starts_with('\n') && rest.peek().is_some();
    let has_asterisks = is_block && rest.all(|line| line.trim_start().starts_with('*'));
    let lines = comment.lines().map(|line| {
        let line = match line.trim_start().strip_prefix('*') {
            Some(line) if has_asterisks => line,
            _ => line,
        };
        line.strip_prefix(' ').unwrap_or(line).trim_end()
    });
    lines.collect::<Vec<_>>().join("\n")
}
