//! The handler of all tools.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request};
use mrtr_server::{Context, ElicitOutcome, Error, Result, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use crate::api_client::ApiClient;
use crate::arguments::Arguments;
use crate::plan::Plan;
use crate::response;

/// A function that changes requests before they are sent.
pub(crate) type BeforeSend = dyn Fn(&Context, &mut Request<Bytes>) -> Result<()> + Send + Sync;

/// What all tools of a document share.
pub(crate) struct Api<C> {
    pub(crate) base: Url,
    pub(crate) client: C,
    pub(crate) before_send: Box<BeforeSend>,
    pub(crate) max_response_bytes: usize,
}

/// The form in which the user approves a request.
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
        let question = plan.question(&request, &arguments)?;
        let outcome = cx.elicit::<Confirmation>("send", question).outcome().await?;
        if !matches!(outcome, ElicitOutcome::Accept(Confirmation { send: true })) {
            return Err(Error::new("The request was not sent: the user did not approve it."));
        }
    }
    if plan.has_key {
        let key = async |step: mrtr_server::Step| Ok(step.idempotency_key().to_owned());
        let key = cx.step("idempotency-key", key).await?;
        let key = HeaderValue::try_from(key).map_err(Error::internal)?;
        request.headers_mut().insert("idempotency-key", key);
    }
    (api.before_send)(&cx, &mut request)?;
    let sent = api.client.send(request, api.max_response_bytes).await;
    let failure = match sent {
        Ok(response) if response.body().len() <= api.max_response_bytes => {
            return Ok(response::output(&response, plan.output.as_ref()));
        }
        Ok(_) => "the response is too large".into(),
        Err(error) => error,
    };
    let operation = &plan.operation;
    tracing::warn!(target: "mrtr::openapi", %operation, error = &*failure, "a request to the API failed");
    let message = "There was no usable response from the API: the connection failed, it took too \
                   long, or the response was too large.";
    if operation.is_safe() {
        return Err(Error::new(message));
    }
    let warning = "The request may have been carried out. Check that before you repeat it.";
    Err(Error::new(format!("{message} {warning}")))
}
