//! `resources/list`, `resources/templates/list` and `resources/read`.

use std::sync::Arc;

use mrtr_schema::content::ResourceContents;
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::method;
use mrtr_schema::resource::{ReadResourceParams, ReadResourceResult};
use mrtr_schema::tool::ListParams;
use serde_json::{Value, json};

use super::execute::{RoundExecution, Target};
use super::{is_single_use, refused, run, unfit};
use crate::call_options::CallOptions;
use crate::handler::ErasedHandler;
use crate::output::ResourceOutput;
use crate::registry::Registry;
use crate::registry::{Methods, Outcome, ResponseFuture};
use crate::request_parts::RequestParts;
use crate::resource::CacheControl;

pub(crate) const METHODS: Methods = &[
    (method::RESOURCES_LIST, list),
    (method::RESOURCE_TEMPLATES_LIST, list_templates),
    (method::RESOURCES_READ, read),
];

fn list<'r>(
    server: &'r Arc<Registry>,
    request: &'r Request,
    _: Box<RequestParts>,
) -> ResponseFuture<'r> {
    Box::pin(async { server.page("resources", &server.resources, &ListParams::of(request)?) })
}

fn list_templates<'r>(
    server: &'r Arc<Registry>,
    request: &'r Request,
    _: Box<RequestParts>,
) -> ResponseFuture<'r> {
    Box::pin(async {
        server.page("resourceTemplates", &server.templates, &ListParams::of(request)?)
    })
}

fn read<'r>(
    server: &'r Arc<Registry>,
    request: &'r Request,
    parts: Box<RequestParts>,
) -> ResponseFuture<'r> {
    Box::pin(async move {
        let call = ReadResourceParams::of(request)?;
        let single_use =
            is_single_use(call.request_state.is_some(), || server.resource_options(&call.uri));
        let inner = Arc::clone(server);
        run(server, single_use, Box::pin(async move { inner.read_resource(call, parts).await }))
            .await
    })
}

impl Registry {
    async fn read_resource(&self, call: ReadResourceParams, parts: Box<RequestParts>) -> Outcome {
        if let Some(resource) = self.resource(&call.uri) {
            let mime_type = resource.wire.mime_type.as_deref();
            let what = Found { options: &resource.options, cache: resource.cache, mime_type };
            return self.read(call, parts, &what, "{}", &resource.handler).await;
        }
        let matched = self
            .templates
            .iter()
            .find_map(|(template, resource)| Some((template.matches(&call.uri)?, resource)));
        let Some((variables, resource)) = matched else {
            let error = ErrorObject::invalid_params("Resource not found");
            return Err(error.with_data(json!({ "uri": call.uri })));
        };
        let variables = variables.into_iter().map(|(name, value)| (name, Value::String(value)));
        let arguments = Value::Object(variables.collect()).to_string();
        let mime_type = resource.wire.mime_type.as_deref();
        let what = Found { options: &resource.options, cache: resource.cache, mime_type };
        self.read(call, parts, &what, &arguments, &resource.handler).await
    }

    async fn read(
        &self,
        call: ReadResourceParams,
        parts: Box<RequestParts>,
        what: &Found<'_>,
        arguments: &str,
        handler: &ErasedHandler<ResourceOutput>,
    ) -> Outcome {
        let target = Target {
            method: method::RESOURCES_READ,
            name: &call.uri,
            arguments,
            options: what.options,
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
                        let result = filled(*result, &call.uri, what, retried);
                        let fits = result.contents.iter().try_for_each(ResourceContents::check);
                        fits.map_err(|why| unfit(&call.uri, &why))?;
                        self.complete(&result)
                    }
                    // A resource has no place for failures in its result.
                    Err(error) => Err(refused(&error).with_data(json!({ "uri": call.uri }))),
                },
            )
            .await
    }
}

/// Fills in what the handler left to the request and the resource.
fn filled(
    mut result: ReadResourceResult,
    uri: &str,
    what: &Found<'_>,
    retried: bool,
) -> ReadResourceResult {
    for contents in &mut result.contents {
        if contents.uri.is_empty() {
            uri.clone_into(&mut contents.uri);
        }
        if contents.mime_type.is_none() {
            contents.mime_type = what.mime_type.map(str::to_owned);
        }
    }
    // What depends on answers is for nobody to reuse.
    let cache = if retried { CacheControl::default() } else { what.cache };
    (result.ttl_ms, result.cache_scope) = (cache.ttl_ms, cache.scope);
    result
}

/// What a URI stands for.
struct Found<'a> {
    options: &'a CallOptions,
    cache: CacheControl,
    mime_type: Option<&'a str>,
}
