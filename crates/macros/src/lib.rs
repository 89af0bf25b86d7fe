//! Attribute macros for mrtr: tools, prompts and resources from async functions and their doc
//! comments.
//!
//! Use them through the feature `macros` of the `mrtr` crate, which re-exports them. Each macro
//! leaves its function unchanged and adds a constructor next to it. The constructor is the code
//! that you would write by hand:
//!
//! - `#[tool]` on `book` adds `book_tool()`: `Tool::new("book", doc, book)`.
//! - `#[prompt]` on `brief` adds `brief_prompt()`: `Prompt::new("brief", doc, brief)`.
//! - `#[resource("doc://faq")]` on `faq` adds `faq_resource()`:
//!   `Resource::new("doc://faq", "faq", faq)`.
//! - `#[resource_template("doc://{id}")]` on `page` adds `page_resource_template()`:
//!   `ResourceTemplate::new("doc://{id}", "page", page)`.
//!
//! A method with `&self` becomes a handler that extracts `State<Self>`; the constructor is then an
//! associated function. An associated function without `&self` is an error.

mod attributes;
mod expand;

use proc_macro::TokenStream;

use crate::attributes::Kind;

/// Adds a constructor of a `Tool` next to an async function.
///
/// The name is the function's name, and the description its doc comment. Attributes:
///
/// - `name = "…"`, `description = "…"`, `title = "…"`
/// - annotations: `read_only`, `destructive`, `idempotent`, `open_world`, each alone or with
///   `= true` or `= false`
/// - `manual`: the function is in the manual form, and takes a `ManualContext`
/// - `crate = "…"`: the path of the crate `mrtr`, if it has another name. Default: `::mrtr`
#[proc_macro_attribute]
pub fn tool(attributes: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(Kind::Tool, attributes.into(), item.into()).into()
}

/// Adds a constructor of a `Prompt` next to an async function.
///
/// The name is the function's name, and the description its doc comment. Attributes:
/// `name = "…"`, `description = "…"`, `title = "…"`, `manual`, and `crate = "…"`.
#[proc_macro_attribute]
pub fn prompt(attributes: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(Kind::Prompt, attributes.into(), item.into()).into()
}

/// Adds a constructor of a `Resource` next to an async function.
///
/// The first attribute is the URI. The name is the function's name, and the description its doc
/// comment. Further attributes: `name = "…"`, `description = "…"`, `title = "…"`,
/// `mime_type = "…"`, `manual`, and `crate = "…"`.
#[proc_macro_attribute]
pub fn resource(attributes: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(Kind::Resource, attributes.into(), item.into()).into()
}

/// Adds a constructor of a `ResourceTemplate` next to an async function.
///
/// The first attribute is the URI template; the other attributes are those of [`macro@resource`].
#[proc_macro_attribute]
pub fn resource_template(attributes: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(Kind::ResourceTemplate, attributes.into(), item.into()).into()
}
