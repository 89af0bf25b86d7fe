//! Calls that run until they are complete: tools, prompts, resources, discovery, completion and
//! extension methods.

use std::collections::BTreeMap;
use std::time::Duration;

use mrtr_schema::completion::{
    CompleteArgument, CompleteContext, CompleteResult, Completion, Reference,
};
use mrtr_schema::discover::DiscoverResult;
use mrtr_schema::method;
use mrtr_schema::prompt::GetPromptResult;
use mrtr_schema::resource::ReadResourceResult;
use mrtr_schema::tool::CallToolResult;
use mrtr_transport::Transport;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::cache::Lookup;
use crate::call_result::CallResult;
use crate::client::Client;
use crate::error::CallError;
use crate::json::{decode_result, encode_param};

/// How long a result waits for a new list of tools, to be checked again.
const RELIST_LIMIT: Duration = Duration::from_secs(10);

impl<T: Transport> Client<T> {
    /// Requests the server's name, capabilities and protocol versions (`server/discover`).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn discover(&self) -> Result<DiscoverResult, CallError> {
        self.call(method::DISCOVER, &[]).await
    }

    /// Calls a tool (`tools/call`). `arguments` is serialized as JSON, and must be an object.
    ///
    /// Input requests of the tool go to the client's handlers; [`Client::begin_tool`] returns
    /// them instead. Dropping the future cancels the call.
    ///
    /// # Errors
    ///
    /// See [`CallError`]. A tool that fails in a way the model should read returns a result: see
    /// [`CallToolResult::is_error`]. With the feature `validate`, a result that does not match the
    /// `outputSchema` of the last listing is a protocol error, and a tool whose `outputSchema` is
    /// invalid is not called.
    ///
    /// ```
    /// # use mrtr_client::{CallError, Client, Transport};
    /// # async fn example<T: Transport>(client: Client<T>) -> Result<(), CallError> {
    /// let result = client.call_tool("book", serde_json::json!({ "people": 2 })).await?;
    /// if result.is_error {
    ///     println!("the tool failed: {}", result.text());
    /// } else {
    ///     println!("{}", result.text());
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn call_tool(
        &self,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<CallToolResult, CallError> {
        let params = [("name", encode_param(&name)?), ("arguments", encode_param(&arguments)?)];
        self.complete_call(name, &params).await
    }

    /// Gets a prompt (`prompts/get`). `arguments` is serialized as JSON, and must be an object of
    /// strings.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn get_prompt(
        &self,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<GetPromptResult, CallError> {
        let params = [("name", encode_param(&name)?), ("arguments", encode_param(&arguments)?)];
        self.complete_call(name, &params).await
    }

    /// Reads a resource (`resources/read`).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn read_resource(&self, uri: &str) -> Result<ReadResourceResult, CallError> {
        self.complete_call(uri, &[("uri", encode_param(&uri)?)]).await
    }

    /// Requests values that complete an argument (`completion/complete`), given the text typed so
    /// far and the arguments that are already known.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn complete(
        &self,
        reference: &Reference,
        argument: &CompleteArgument,
        context: &CompleteContext,
    ) -> Result<Completion, CallError> {
        let params = [
            ("ref", encode_param(reference)?),
            ("argument", encode_param(argument)?),
            ("context", encode_param(context)?),
        ];
        let result: CompleteResult = self.call(method::COMPLETE, &params).await?;
        Ok(result.completion)
    }

    /// Calls a method that this crate has no types for, such as one of an extension.
    ///
    /// `params` is serialized as JSON, and must be an object. The members of its `_meta`, if it has
    /// one, are added to the client's own.
    ///
    /// # Errors
    ///
    /// If `params` is not an object, or its `_meta` has a key that the client sets itself. For
    /// others see [`CallError`].
    pub async fn request<R: DeserializeOwned>(
        &self,
        method: &str,
        params: impl Serialize,
    ) -> Result<R, CallError> {
        // In an order, so that the cache knows them again.
        let params: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(encode_param(&params)?.get()).map_err(|e| {
                CallError::request(format!("the parameters of {method} are not an object: {e}"))
            })?;
        let params: Vec<_> =
            params.iter().map(|(name, raw)| (name.as_str(), raw.clone())).collect();
        self.call(method, &params).await
    }

    /// Makes a call, or takes its result from the cache.
    async fn call<R: DeserializeOwned>(
        &self,
        method: &str,
        params: &[(&str, Box<RawValue>)],
    ) -> Result<R, CallError> {
        Ok(self.cached_call(method, params).await?.result)
    }

    /// Makes a call whose server may request input, with the handlers.
    async fn complete_call<R: CallResult>(
        &self,
        target: &str,
        params: &[(&str, Box<RawValue>)],
    ) -> Result<R, CallError> {
        let result = self.call(R::METHOD, params).await?;
        self.received(target, result).await
    }

    /// Validates a received result, and removes what is unsafe to show.
    ///
    /// If a result does not match the schema of its tool, the tools are listed again: the tool has
    /// run, and may have changed since it was listed.
    pub(crate) async fn received<R: CallResult>(
        &self,
        target: &str,
        mut result: R,
    ) -> Result<R, CallError> {
        result.remove_unsafe();
        let check = || match self.validating(target) {
            Some(tool) => result.check(&tool),
            None => Ok(()),
        };
        if check().is_err() {
            self.shared.cache.remove(&[method::TOOLS_LIST]);
            // The result is there: it does not wait for long.
            let listing = tokio::time::timeout(RELIST_LIMIT, Box::pin(self.list_tools()));
            if !matches!(listing.await, Ok(Ok(_))) {
                tracing::debug!(target: "mrtr::client", "the tools cannot be listed again");
            }
        }
        match check() {
            Ok(()) => Ok(result),
            Err(why) => {
                let why = format!("invalid result of tool {target:?}: {why}");
                Err(CallError::protocol(why))
            }
        }
    }

    /// Makes a call, or takes its result from the cache. A malformed result is not kept there.
    pub(crate) async fn cached_call<R: DeserializeOwned>(
        &self,
        method: &str,
        params: &[(&str, Box<RawValue>)],
    ) -> Result<Decoded<R>, CallError> {
        let declared = self.options.capabilities.as_deref();
        let epoch = || self.shared.transport.authorization_epoch();
        let decoded = |result: &RawValue| -> Result<_, CallError> {
            Ok(Decoded { result: decode_result(method, result)?, bytes: result.get().len() })
        };
        let slot = match self.shared.cache.find(method, params, declared, epoch()) {
            Lookup::NotCacheable => return decoded(&self.run(method, params).await?.result),
            Lookup::Missing(slot) => slot,
            Lookup::Fresh(result, slot) => match decoded(&result) {
                Ok(decoded) => return Ok(decoded),
                // It was received as a type that accepts more.
                Err(_) => slot,
            },
        };
        let completed = self.run(method, params).await?;
        let decoded = decoded(&completed.result)?;
        if completed.rounds == 1 {
            self.shared.cache.store(slot, &completed.result, epoch());
        }
        Ok(decoded)
    }
}

/// A result, and the length of its JSON.
pub(crate) struct Decoded<R> {
    pub(crate) result: R,
    pub(crate) bytes: usize,
}
