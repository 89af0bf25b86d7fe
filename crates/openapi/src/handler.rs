//! The handler of all tools.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request};
use mrtr_server::{Context, ElicitOutcome, Error, Result, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use crate::api_client::ApiClient;
use crate::arguments::Arguments;
use crate::plan::Plan;
use crate::response;

/// A rule that completes requests.
pub(crate) type BeforeSend = dyn Fn(&Context, &mut Request<Bytes>) -> Result<()> + Send + Sync;

/// What all tools of a document share.
pub(crate) struct Api<C> {
    pub(crate) base: Url,
    pub(crate) client: C,
    pub(crate) before_send: Box<BeforeSend>,
    pub(crate) max_response_bytes: usize,
}

/// The form in which the user agrees to a request.
#[derive(Deserialize, JsonSchema)]
struct Confirmation {
    /// Send the request
    #[serde(default)]
    send: bool,
}

pub(crate) async fn call<C: ApiClient>(
    api: Arc<Api<C>>,
    plan: Arc<Plan>,
    is_confirmed: bool,
    cx: Context,
    arguments: Arguments,
) -> Result<ToolOutput> {
    let mut request = plan.request(&api.base, &arguments)?;
    if is_confirmed {
        let question = plan.question(&request, &arguments);
        let outcome = cx.elicit::<Confirmation>("send", question).outcome().await?;
        if !matches!(outcome, ElicitOutcome::Accept(Confirmation { send: true })) {
            return Err(Error::new("The user did not agree, so the request was not sent."));
        }
    }
    if [Method::POST, Method::PATCH].contains(request.method()) {
        let key = async |step: mrtr_server::Step| Ok(step.idempotency_key().to_owned());
        let key = cx.step("idempotency-key", key).await?;
        let key = HeaderValue::try_from(key).map_err(Error::internal)?;
        request.headers_mut().insert("idempotency-key", key);
    }
    (api.before_send)(&cx, &mut request)?;
    match api.client.send(request, api.max_response_bytes).await {
        Ok(response) => Ok(response::output(&response)),
        Err(error) => {
            let (method, path) = (&plan.operation.method, &plan.operation.path);
            tracing::warn!(target: "mrtr::openapi", %method, path, error = &*error, "a request failed");
            Err(Error::new("The API did not answer. The request may have had an effect."))
        }
    }
}
