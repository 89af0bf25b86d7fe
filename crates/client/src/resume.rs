//! Calls that pause when the server requests input or turns them into tasks.

use mrtr_schema::input::InputResponses;
use mrtr_schema::prompt::GetPromptResult;
use mrtr_schema::resource::ReadResourceResult;
use mrtr_schema::tool::CallToolResult;
use mrtr_transport::Transport;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::call_result::CallResult;
use crate::client::Client;
use crate::driver::{Completed, Driven, InputSource};
use crate::error::CallError;
use crate::json::{decode_result, encode_param};
use crate::machine::{Action, Machine, check_requests};
use crate::pending_call::PendingCall;

/// The outcome of a call that pauses when the server requests input or turns it into a task.
#[derive(Debug, Clone)]
pub enum CallOutcome<R> {
    /// The call is complete.
    Complete(R),
    /// The server requests input. Answer it, now or later, and [`resume`](Client::resume) the call.
    InputRequired(PendingCall),
    /// The server turned the call into a task, which is not complete yet. Only tool calls become
    /// tasks. [`finish`](Client::finish) the call, or [`resume`](Client::resume) it without
    /// responses, now or later: that polls the task.
    ///
    /// After [`Client::with_pause_in_every_round`], also a call of any kind whose round ended with
    /// a request state alone.
    Working(PendingCall),
}

impl<T: Transport> Client<T> {
    /// Calls a tool (`tools/call`), and returns when the server requests input or turns the call
    /// into a task.
    ///
    /// The server can only request what the client declared, so set a handler for each kind of
    /// input ([`ClientBuilder`](crate::ClientBuilder)), even if it is never called. Rounds without
    /// input requests are repeated without returning, unless
    /// [`with_pause_in_every_round`](Client::with_pause_in_every_round) is set.
    ///
    /// # Errors
    ///
    /// See [`Client::call_tool`].
    ///
    /// ```
    /// # use mrtr_client::{Client, Transport};
    /// # async fn example<T: Transport>(
    /// #     client: Client<T>,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use mrtr_client::CallOutcome;
    /// use mrtr_schema::elicitation::ElicitResult;
    /// use mrtr_schema::input::InputResponses;
    /// use serde_json::json;
    ///
    /// let mut outcome = client.begin_tool("book", json!({ "people": 2 })).await?;
    /// let result = loop {
    ///     match outcome {
    ///         CallOutcome::Complete(result) => break result,
    ///         CallOutcome::InputRequired(call) => {
    ///             let mut responses = InputResponses::default();
    ///             for (key, request) in &call.input_requests().0 {
    ///                 println!("{key}: {}", request.method());
    ///                 responses.push(key, &ElicitResult::decline())?;
    ///             }
    ///             outcome = client.resume(call, &responses).await?;
    ///         }
    ///         CallOutcome::Working(call) => {
    ///             outcome = client.resume(call, &InputResponses::default()).await?;
    ///         }
    ///     }
    /// };
    /// println!("{}", result.text());
    /// # Ok(()) }
    /// ```
    pub async fn begin_tool(
        &self,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<CallOutcome<CallToolResult>, CallError> {
        self.begin(&[("name", encode_param(&name)?), ("arguments", encode_param(&arguments)?)])
            .await
    }

    /// Gets a prompt (`prompts/get`), and returns when the server requests input. See
    /// [`Client::begin_tool`].
    ///
    /// # Errors
    ///
    /// See [`Client::get_prompt`].
    pub async fn begin_prompt(
        &self,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<CallOutcome<GetPromptResult>, CallError> {
        self.begin(&[("name", encode_param(&name)?), ("arguments", encode_param(&arguments)?)])
            .await
    }

    /// Reads a resource (`resources/read`), and returns when the server requests input. See
    /// [`Client::begin_tool`].
    ///
    /// # Errors
    ///
    /// See [`Client::read_resource`].
    pub async fn begin_resource(
        &self,
        uri: &str,
    ) -> Result<CallOutcome<ReadResourceResult>, CallError> {
        self.begin(&[("uri", encode_param(&uri)?)]).await
    }

    async fn begin<R: CallResult>(
        &self,
        params: &[(&str, Box<RawValue>)],
    ) -> Result<CallOutcome<R>, CallError> {
        let (machine, action) = self.start(R::METHOD, params)?;
        self.drive_to_outcome(
            machine,
            action,
            InputSource::Application { responses: None, poll: false },
        )
        .await
    }

    /// Resumes a call with one response to each of its input requests, and returns when the server
    /// requests input again.
    ///
    /// If the call is a task, sends the responses to it, or, without input requests, polls it once.
    /// A poll waits for the interval that the server states, at least 100 ms and at most 1 h; for a
    /// call that was deserialized, 100 ms.
    ///
    /// The responses are validated first ([`PendingCall::validate`]). If one is invalid, nothing is
    /// sent, and a clone of `call` can be resumed with other responses.
    ///
    /// The limits of rounds count from where the call paused. The timeout starts again.
    ///
    /// # Errors
    ///
    /// Those of the call itself, [`CallError::is_handler`] if a response is invalid, and an error
    /// if `R` is not the result type of the call's method.
    ///
    /// ```
    /// # use mrtr_client::{Client, Transport};
    /// # async fn example<T: Transport>(
    /// #     client: Client<T>,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use mrtr_client::{CallOutcome, PendingCall};
    /// use mrtr_schema::elicitation::ElicitResult;
    /// use mrtr_schema::input::InputResponses;
    /// use mrtr_schema::tool::CallToolResult;
    /// use serde_json::json;
    ///
    /// let call: PendingCall = serde_json::from_str(&std::fs::read_to_string("call.json")?)?;
    /// let mut responses = InputResponses::default();
    /// responses.push("seat", &ElicitResult::accept(json!({ "place": "outside" }))?)?;
    /// match client.resume::<CallToolResult>(call, &responses).await? {
    ///     CallOutcome::Complete(result) => println!("{}", result.text()),
    ///     CallOutcome::InputRequired(call) => println!("round {}", call.input_round()),
    ///     CallOutcome::Working(call) => println!("task {:?}", call.task_id()),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn resume<R: CallResult>(
        &self,
        call: PendingCall,
        responses: &InputResponses,
    ) -> Result<CallOutcome<R>, CallError> {
        let responses = call.validate(responses)?;
        // A call without input requests only waits, and the next input requests are new ones.
        let poll = call.input_requests().0.is_empty();
        let responses = (!poll).then_some(responses);
        let (machine, action) = self.resume_machine::<R>(call)?;
        self.drive_to_outcome(machine, action, InputSource::Application { responses, poll }).await
    }

    /// Resumes a call and runs it until it is complete. Its input requests, and those of later
    /// rounds, go to the client's handlers.
    ///
    /// # Errors
    ///
    /// Those of the call itself, and an error if `R` is not the result type of the call's method,
    /// or if an input request needs a capability that this client does not declare.
    pub async fn finish<R: CallResult>(&self, mut call: PendingCall) -> Result<R, CallError> {
        // The client that has paused the call may have declared more.
        if let Some(requests) = &mut call.requests {
            check_requests(requests, &self.request_meta())?;
        }
        let (machine, action) = self.resume_machine::<R>(call)?;
        match self.drive_to_outcome(machine, action, InputSource::Handlers).await? {
            CallOutcome::Complete(result) => Ok(result),
            CallOutcome::InputRequired(_) | CallOutcome::Working(_) => {
                Err(CallError::unexpected_pause())
            }
        }
    }

    fn resume_machine<R: CallResult>(
        &self,
        call: PendingCall,
    ) -> Result<(Machine, Action), CallError> {
        if call.method() != R::METHOD {
            return Err(CallError::request(format!(
                "cannot resume a {} call as {}",
                call.method(),
                R::METHOD
            )));
        }
        let (ids, limits) = (self.shared.ids.clone(), self.options.limits);
        Ok(Machine::resume(call, ids, self.request_meta(), limits))
    }

    async fn drive_to_outcome<R: CallResult>(
        &self,
        machine: Machine,
        action: Action,
        input: InputSource,
    ) -> Result<CallOutcome<R>, CallError> {
        let target = machine.call().target();
        match self.drive(machine, action, input).await? {
            Driven::Paused(call) if call.input_requests().0.is_empty() => {
                Ok(CallOutcome::Working(call))
            }
            Driven::Paused(call) => Ok(CallOutcome::InputRequired(call)),
            Driven::Completed(Completed { result, .. }) => {
                let result: R = decode_result(R::METHOD, &result)?;
                self.received(&target, result).await.map(CallOutcome::Complete)
            }
        }
    }
}
