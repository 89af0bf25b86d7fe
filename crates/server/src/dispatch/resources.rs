//! `resources/list`, `resources/templates/list` and `resources/read`.

use std::sync::Arc;

use mrtr_schema::apps;
use mrtr_schema::content::ResourceContents;
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::method;
use mrtr_schema::resource::{ReadResourceParams, ReadResourceResult};
use mrtr_schema::result::CacheScope;
use mrtr_schema::tool::ListParams;
use serde_json::{Value, json};

use super::execute::{RoundExecution, Target};
use super::{handler_error, invalid_output, is_single_use, run_round};
use crate::call_options::CallOptions;
use crate::handler::ErasedHandler;
use crate::output::{ReadOutput, ResourceOutput};
use crate::registry::{Methods, Outcome, Registry, ResponseFuture};
use crate::request_parts::RequestParts;
use crate::resource::{CacheControl, ResourceUri};

pub(crate) const METHODS: Methods = &[
    (method::RESOURCES_LIST, list),
    (method::RESOURCE_TEMPLATES_LIST, list_templates),
    (method::RESOURCES_READ, read),
];

fn list(server: Arc<Registry>, request: &Request, parts: Box<RequestParts>) -> ResponseFuture<'_> {
    Box::pin(async move {
        server.page("resources", &server.resources, &ListParams::from_request(request)?, &parts)
    })
}

fn list_templates(
    server: Arc<Registry>,
    request: &Request,
    parts: Box<RequestParts>,
) -> ResponseFuture<'_> {
    Box::pin(async move {
        let list = ListParams::from_request(request)?;
        server.page("resourceTemplates", &server.templates, &list, &parts)
    })
}

fn read(server: Arc<Registry>, request: &Request, parts: Box<RequestParts>) -> ResponseFuture<'_> {
    Box::pin(async move {
        let call = ReadResourceParams::from_request(request)?;
        let single_use =
            is_single_use(call.request_state.is_some(), || server.resource_options(&call.uri));
        let registry = Arc::clone(&server);
        let round = Box::pin(async move { registry.read_resource(call, parts).await });
        run_round(&server, single_use, round).await
    })
}

impl Registry {
    async fn read_resource(
        &self,
        call: ReadResourceParams,
        mut parts: Box<RequestParts>,
    ) -> Outcome {
        let not_found = |uri: &str| {
            ErrorObject::invalid_params("Resource not found").with_data(json!({ "uri": uri }))
        };
        if self.hides_uri(&call.uri, &parts) {
            return Err(not_found(&call.uri));
        }
        if let Some(resource) = self.resource(&call.uri) {
            let info = ResourceInfo {
                options: &resource.options,
                cache: resource.cache,
                mime_type: resource.wire.mime_type.as_deref(),
                ui: resource.contents_ui.as_ref(),
            };
            return self.read(call, parts, &info, "{}", &resource.handler).await;
        }
        let matched =
            self.templates.iter().find_map(|found| Some((found.0.matches(&call.uri)?, &found.1)));
        let Some((variables, resource)) = matched else {
            return Err(not_found(&call.uri));
        };
        parts.extensions.insert(ResourceUri(call.uri.clone()));
        let variables = variables.into_iter().map(|(name, value)| (name, Value::String(value)));
        let arguments = Value::Object(variables.collect()).to_string();
        let info = ResourceInfo {
            options: &resource.options,
            cache: resource.cache,
            mime_type: resource.wire.mime_type.as_deref(),
            ui: resource.contents_ui.as_ref(),
        };
        self.read(call, parts, &info, &arguments, &resource.handler).await
    }

    async fn read(
        &self,
        call: ReadResourceParams,
        parts: Box<RequestParts>,
        info: &ResourceInfo<'_>,
        arguments: &str,
        handler: &ErasedHandler<ResourceOutput>,
    ) -> Outcome {
        let target = Target {
            method: method::RESOURCES_READ,
            name: &call.uri,
            arguments,
            options: info.options,
        };
        let retried = call.request_state.is_some() || call.input_responses.is_some();
        let round = RoundExecution::open(
            self,
            target,
            parts,
            call.input_responses,
            call.request_state.as_deref(),
        )?;
        let handler = round
            .begin(handler)?
            .map_err(|why| ErrorObject::invalid_params(format!("Invalid resource: {why}")))?;
        round
            .run(
                handler,
                |ResourceOutput(output)| output,
                |outcome| match outcome {
                    Ok(result) => {
                        let mut result = complete_contents(*result, &call.uri, info, retried);
                        let is_public = result.cache_scope == CacheScope::Public;
                        if is_public
                            && (round.requires_scope()
                                || self.is_restricted(&call.uri, info.options))
                        {
                            result.cache_scope = CacheScope::Private;
                        }
                        let fits = result.contents.iter().try_for_each(ResourceContents::validate);
                        fits.map_err(|why| invalid_output(&call.uri, &why.to_string()))?;
                        let meta = result.meta.take();
                        self.complete_with(&result, meta)
                    }
                    // The result of a resource cannot express an error.
                    Err(error) => Err(match error.as_response() {
                        Some(response) => response.clone(),
                        None => handler_error(&error).with_data(json!({ "uri": call.uri })),
                    }),
                },
            )
            .await
    }
}

/// Fills in the members that the handler left to the request and the resource.
fn complete_contents(
    ReadOutput { mut result, has_own_hints }: ReadOutput,
    uri: &str,
    info: &ResourceInfo<'_>,
    retried: bool,
) -> ReadResourceResult {
    for contents in &mut result.contents {
        if contents.uri.is_empty() {
            uri.clone_into(&mut contents.uri);
        }
        if contents.mime_type.is_none() {
            contents.mime_type = info.mime_type.map(str::to_owned);
        }
        if let Some(ui) = info.ui {
            let meta = contents.meta.get_or_insert_default();
            meta.entry(apps::META_KEY).or_insert_with(|| ui.clone());
        }
    }
    if retried {
        // A result that depends on answers must not be reused for other requests.
        set_cache(&mut result, CacheControl::default());
    } else if !has_own_hints {
        set_cache(&mut result, info.cache);
    }
    result
}

fn set_cache(result: &mut ReadResourceResult, cache: CacheControl) {
    result.ttl_ms = cache.ttl_ms;
    result.cache_scope = cache.scope;
}

/// The properties of a resource or template that a read needs.
struct ResourceInfo<'a> {
    options: &'a CallOptions,
    cache: CacheControl,
    mime_type: Option<&'a str>,
    /// The metadata of contents that have none of their own (MCP Apps).
    ui: Option<&'a Value>,
}
