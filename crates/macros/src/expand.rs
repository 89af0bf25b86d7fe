//! The expansion of an annotated function to the function and its constructor.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::parse::Parser as _;
use syn::{Attribute, FnArg, Ident, ItemFn, Receiver, ReceiverKind, Signature, Type};

use crate::attributes::{Arguments, Kind, check_cfg_attr, doc_comment};

/// Returns the function and its constructor, or a compile error.
pub(crate) fn expand(kind: Kind, attributes: TokenStream, item: TokenStream) -> TokenStream {
    let constructor = constructor(kind, attributes, item.clone());
    let constructor = constructor.unwrap_or_else(|error| error.to_compile_error());
    let mut expanded = item;
    expanded.extend(constructor);
    expanded
}

fn constructor(kind: Kind, attributes: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let arguments =
        (|input: syn::parse::ParseStream<'_>| Arguments::parse(kind, input)).parse2(attributes)?;
    let function: ItemFn = syn::parse2(item)?;
    check(kind, &function.sig)?;
    check_cfg_attr(&function.attrs)?;
    let mrtr = arguments.mrtr.as_ref().map_or_else(|| quote! { ::mrtr }, |path| quote! { #path });
    let name = &function.sig.ident;
    let description = match &arguments.description {
        Some(description) => Some(description.value()),
        None => doc_comment(&function.attrs)?,
    };
    let constructor = format_ident!("{}_{}", name, kind.suffix());
    let type_name = format_ident!("{}", kind.type_name());
    let new = if arguments.manual { format_ident!("manual") } else { format_ident!("new") };
    let plain_name = name.unraw().to_string();
    let wire_name = arguments.name.as_ref().map_or_else(|| plain_name.clone(), syn::LitStr::value);
    let handler = handler(&mrtr, &function.sig);
    let has = |name| move |attribute: &&Attribute| attribute.path().is_ident(name);
    let cfgs: Vec<_> = function.attrs.iter().filter(has("cfg")).collect();
    // The constructor has to name the function, even if it is deprecated.
    let allow = function.attrs.iter().any(|attribute| has("deprecated")(&attribute));
    let allow = allow.then(|| quote! { #[allow(deprecated)] });
    let visibility = &function.vis;
    // A method may bound the parameters of its type.
    let where_clause = &function.sig.generics.where_clause;
    let first = match &arguments.uri {
        Some(uri) => quote! { #uri, #wire_name },
        None => {
            let missing = || {
                let error = "missing description: write a doc comment or `description = \"…\"`";
                syn::Error::new(name.span(), error)
            };
            let description = description.as_ref().ok_or_else(missing)?;
            quote! { #wire_name, #description }
        }
    };
    let setters = setters(&mrtr, &arguments, kind, description.as_deref());
    let is_method = receiver(&function.sig).is_some();
    let link = match (*name == plain_name, is_method) {
        // rustdoc does not resolve raw identifiers.
        (false, _) => String::new(),
        (true, true) => format!("(Self::{name})"),
        (true, false) => format!("(fn@{name})"),
    };
    let plain_name = if link.is_empty() { plain_name } else { format!("[`{plain_name}`]{link}") };
    let doc = format!("Creates the {} of {plain_name}.", kind.suffix().replace('_', " "));
    // In an `impl` block, the constructor of a function without `&self` would refer to a free
    // function of the same name. `const _` is not allowed there, so the compiler rejects it.
    let not_in_impl = (!is_method).then(|| {
        quote_spanned! { name.span() => #(#cfgs)* const _: () = (); }
    });
    Ok(quote! {
        #not_in_impl
        #(#cfgs)*
        #[doc = #doc]
        #allow
        #visibility fn #constructor() -> #mrtr::#type_name #where_clause {
            #mrtr::#type_name::#new(#first, #handler)#setters
        }
    })
}

fn check(kind: Kind, signature: &Signature) -> syn::Result<()> {
    let error = |span, text: &str| Err(syn::Error::new(span, text));
    if signature.asyncness.is_none() {
        let text = format!("#[{}] needs an async function", kind.suffix());
        return error(signature.fn_token.span, &text);
    }
    if let Some(parameter) = signature.generics.params.first() {
        return error(syn::spanned::Spanned::span(parameter), "a handler cannot be generic");
    }
    for attribute in signature.inputs.iter().flat_map(parameter_attributes) {
        if receiver(signature).is_some()
            && (attribute.path().is_ident("cfg") || attribute.path().is_ident("cfg_attr"))
        {
            let text = "a parameter of a method cannot have `cfg`: put it on the method";
            return error(syn::spanned::Spanned::span(attribute), text);
        }
    }
    match receiver(signature) {
        Some(receiver) if !matches!(receiver.kind, ReceiverKind::Reference(_, _, None)) => {
            error(receiver.self_token.span, "a handler takes `&self`")
        }
        _ => Ok(()),
    }
}

fn parameter_attributes(input: &FnArg) -> &[Attribute] {
    match input {
        FnArg::Receiver(input) => &input.attrs,
        FnArg::Typed(input) => &input.attrs,
    }
}

fn receiver(signature: &Signature) -> Option<&Receiver> {
    match signature.inputs.first() {
        Some(FnArg::Receiver(receiver)) => Some(receiver),
        _ => None,
    }
}

/// A function is its own handler; a method is called on the state `Self`.
fn handler(mrtr: &TokenStream, signature: &Signature) -> TokenStream {
    let name = &signature.ident;
    if receiver(signature).is_none() {
        return quote! { #name };
    }
    let types: Vec<&Type> = signature
        .inputs
        .iter()
        .filter_map(|input| match input {
            FnArg::Typed(input) => Some(&*input.ty),
            FnArg::Receiver(_) => None,
        })
        .collect();
    let names: Vec<Ident> = (0..types.len()).map(|at| format_ident!("p{at}")).collect();
    quote! {
        async |#mrtr::State(this): #mrtr::State<Self>, #(#names: #types),*| {
            this.#name(#(#names),*).await
        }
    }
}

fn setters(
    mrtr: &TokenStream,
    arguments: &Arguments,
    kind: Kind,
    description: Option<&str>,
) -> TokenStream {
    let title = arguments.title.iter().map(|title| quote! { .title(#title) });
    let mime_type = arguments.mime_type.iter().map(|mime_type| quote! { .mime_type(#mime_type) });
    let description = description
        .filter(|_| kind.has_uri())
        .map(|description| quote! { .description(#description) });
    let hints = arguments.annotations.iter().map(|(name, is_set)| {
        let setter = format_ident!("with_{name}_hint", span = name.span());
        quote! { .#setter(#is_set) }
    });
    let annotations = (!arguments.annotations.is_empty()).then(|| {
        quote! { .annotations(#mrtr::schema::tool::ToolAnnotations::default()#(#hints)*) }
    });
    quote! { #(#title)* #description #(#mime_type)* #annotations }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(kind: Kind, attributes: TokenStream, item: &TokenStream) -> String {
        let text = expand(kind, attributes, item.clone()).to_string();
        text.strip_prefix(&item.to_string()).map(str::trim).map(str::to_owned).unwrap_or(text)
    }

    #[test]
    fn a_tool_expands_to_its_constructor() {
        let item = quote! {
            /// Books a table.
            ///
            /// Asks for the seat.
            pub async fn book(cx: Context, args: Booking) -> Result<String> { todo() }
        };
        let expected = quote! {
            const _: () = ();
            #[doc = "Creates the tool of [`book`](fn@book)."]
            pub fn book_tool() -> ::mrtr::Tool {
                ::mrtr::Tool::new("book", "Books a table.\n\nAsks for the seat.", book)
            }
        };
        assert_eq!(expanded(Kind::Tool, quote! {}, &item), expected.to_string());
    }

    #[test]
    fn attributes_become_setters() {
        let item = quote! { async fn f(cx: ManualContext) {} };
        let attributes = quote! {
            name = "cancel", title = "Cancel", description = "Cancels.", manual, destructive,
            open_world = false
        };
        let expected = quote! {
            const _: () = ();
            #[doc = "Creates the tool of [`f`](fn@f)."]
            fn f_tool() -> ::mrtr::Tool {
                ::mrtr::Tool::manual("cancel", "Cancels.", f).title("Cancel").annotations(
                    ::mrtr::schema::tool::ToolAnnotations::default()
                        .with_destructive_hint(true)
                        .with_open_world_hint(false)
                )
            }
        };
        assert_eq!(expanded(Kind::Tool, attributes, &item), expected.to_string());
    }

    #[test]
    fn a_method_is_called_on_the_state() {
        let item = quote! {
            /// Greets.
            async fn greet(&self, cx: Context, name: Name) -> String { todo() }
        };
        let expected = quote! {
            #[doc = "Creates the prompt of [`greet`](Self::greet)."]
            fn greet_prompt() -> ::mrtr::Prompt {
                ::mrtr::Prompt::new(
                    "greet",
                    "Greets.",
                    async |::mrtr::State(this): ::mrtr::State<Self>, p0: Context, p1: Name| {
                        this.greet(p0, p1).await
                    }
                )
            }
        };
        assert_eq!(expanded(Kind::Prompt, quote! {}, &item), expected.to_string());
    }

    #[test]
    fn the_crate_can_have_another_name_and_a_method_bounds() {
        let item = quote! {
            /// Greets.
            async fn greet(&self) -> String where S: Store { todo() }
        };
        let expected = quote! {
            #[doc = "Creates the tool of [`greet`](Self::greet)."]
            fn greet_tool() -> crate::mcp::Tool where S: Store {
                crate::mcp::Tool::new(
                    "greet",
                    "Greets.",
                    async |crate::mcp::State(this): crate::mcp::State<Self>, | {
                        this.greet().await
                    }
                )
                .annotations(
                    crate::mcp::schema::tool::ToolAnnotations::default().with_read_only_hint(true)
                )
            }
        };
        let attributes = quote! { crate = "crate::mcp", read_only };
        assert_eq!(expanded(Kind::Tool, attributes, &item), expected.to_string());
    }

    #[test]
    fn resources_have_a_uri_and_an_optional_description() {
        let item = quote! { async fn page(args: Page) -> String { todo() } };
        let attributes = quote! { "doc://{id}", mime_type = "text/plain" };
        let expected = quote! {
            const _: () = ();
            #[doc = "Creates the resource template of [`page`](fn@page)."]
            fn page_resource_template() -> ::mrtr::ResourceTemplate {
                ::mrtr::ResourceTemplate::new("doc://{id}", "page", page).mime_type("text/plain")
            }
        };
        assert_eq!(expanded(Kind::ResourceTemplate, attributes, &item), expected.to_string());
    }

    #[test]
    fn attributes_that_the_macro_need_not_see_may_be_conditional() {
        let item = quote! {
            #[doc = "Greets."]
            #[cfg_attr(docsrs, doc(cfg(feature = "greet")), inline)]
            #[cfg_attr(true, must_use)]
            async fn greet() -> String { todo() }
        };
        let text = expanded(Kind::Tool, quote! {}, &item);
        assert!(text.contains("fn greet_tool"), "{text}");
    }

    #[test]
    fn raw_names_are_plain_for_clients() {
        let item = quote! {
            #[deprecated]
            async fn r#match(args: Page) -> String { todo() }
        };
        let expected = quote! {
            const _: () = ();
            #[doc = "Creates the resource of match."]
            #[allow(deprecated)]
            fn match_resource() -> ::mrtr::Resource {
                ::mrtr::Resource::new("doc://a", "match", r#match)
            }
        };
        assert_eq!(expanded(Kind::Resource, quote! { "doc://a" }, &item), expected.to_string());
    }

    #[test]
    fn block_comments_lose_their_asterisks() {
        let texts = [
            ("\n * Books a table.\n *\n *   - soon\n ", "Books a table.\n\n  - soon"),
            ("* one\n * two", "* one\n* two"),
            ("\n Books a table.\n ", "Books a table."),
        ];
        for (comment, text) in texts {
            let item: ItemFn = syn::parse_quote! { #[doc = #comment] async fn f() {} };
            assert_eq!(doc_comment(&item.attrs).unwrap().unwrap(), text);
        }
    }

    #[test]
    fn mistakes_are_named() {
        let documented = quote! { #[doc = " Text"] };
        for (kind, attributes, item, error) in [
            (Kind::Tool, quote! {}, quote! { #documented fn f() {} }, "needs an async function"),
            (Kind::Tool, quote! {}, quote! { async fn f() {} }, "missing description"),
            (
                Kind::Tool,
                quote! { color = "red" },
                quote! { #documented async fn f() {} },
                "unknown attribute `color` of #[tool]",
            ),
            (
                Kind::Prompt,
                quote! { read_only },
                quote! { #documented async fn f() {} },
                "unknown attribute `read_only` of #[prompt]",
            ),
            (
                Kind::Tool,
                quote! {},
                quote! { #documented async fn f<T>(a: T) {} },
                "cannot be generic",
            ),
            (Kind::Tool, quote! {}, quote! { #documented async fn f(self) {} }, "takes `&self`"),
            (
                Kind::Tool,
                quote! {},
                quote! { #documented async fn f(&mut self) {} },
                "takes `&self`",
            ),
            (Kind::Resource, quote! {}, quote! { async fn f() {} }, "expected the URI"),
            (
                Kind::Tool,
                quote! { name = "a", title = "b", name = "c" },
                quote! { #documented async fn f() {} },
                "attribute `name` occurs twice",
            ),
            (
                Kind::Tool,
                quote! { read_only, read_only = false },
                quote! { #documented async fn f() {} },
                "attribute `read_only` occurs twice",
            ),
            (
                Kind::Tool,
                quote! { destructive, read_only },
                quote! { #documented async fn f() {} },
                "a read-only tool is not destructive",
            ),
            (Kind::Tool, quote! { description = " " }, quote! { async fn f() {} }, "is empty"),
            (
                Kind::Tool,
                quote! {},
                quote! { #[doc = include_str!("f.md")] async fn f() {} },
                "not a string literal",
            ),
            (
                Kind::Tool,
                quote! {},
                quote! { #documented async fn f(&self, #[cfg(a)] a: A) {} },
                "put it on the method",
            ),
            (
                Kind::Tool,
                quote! {},
                quote! { #documented #[cfg_attr(a, deprecated = "b")] async fn f() {} },
                "put this attribute above the macro",
            ),
            (Kind::Tool, quote! { crate = "1" }, quote! { async fn f() {} }, "expected identifier"),
        ] {
            let text = expand(kind, attributes, item).to_string();
            assert!(text.contains(error), "{error}: {text}");
        }
    }
}
