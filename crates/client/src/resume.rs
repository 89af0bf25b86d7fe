//! Calls that can be put down between their rounds.

use mrtr_schema::input::InputResponses;
use mrtr_schema::method;
use mrtr_schema::prompt::GetPromptResult;
use mrtr_schema::resource::ReadResourceResult;
use mrtr_schema::tool::CallToolResult;
use mrtr_transport::Transport;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::client::{Client, Known, drop_unsafe_icons, raw};
use crate::driver::{Answering, Completed, End};
use crate::error::CallError;
use crate::machine::{Action, Machine};
use crate::pending_call::PendingCall;

/// Where a call has come to.
#[derive(Debug, Clone)]
pub enum CallOutcome<T> {
    /// To its result.
    Complete(T),
    /// To questions. Answer them, now or later, and [`resume`](Client::resume).
    InputRequired(PendingCall),
}

/// What a call that may ask comes to: [`CallToolResult`], [`GetPromptResult`] or [`ReadResourceResult`].
pub trait CallResult: DeserializeOwned + sealed::Sealed {}

impl CallResult for CallToolResult {}
impl CallResult for GetPromptResult {}
impl CallResult for ReadResourceResult {}

mod sealed {
    use super::{CallError, Known};

    pub trait Sealed: Sized {
        /// The method that has such results.
        const METHOD: &'static str;

        /// Makes of it what may be handed on.
        #[expect(private_interfaces, reason = "nobody else has such results")]
        fn received(self, target: &str, known: Option<&Known>) -> Result<Self, CallError>;
    }
}

impl sealed::Sealed for CallToolResult {
    const METHOD: &'static str = method::TOOLS_CALL;

    #[expect(private_interfaces, reason = "nobody else has such results")]
    fn received(mut self, target: &str, known: Option<&Known>) -> Result<Self, CallError> {
        self.content.iter_mut().for_each(drop_unsafe_icons);
        if let Some(known) = known {
            let wrong = |why| CallError::protocol(format!("the result of {target}: {why}"));
            known.output.check(&self).map_err(wrong)?;
        }
        Ok(self)
    }
}

impl sealed::Sealed for GetPromptResult {
    const METHOD: &'static str = method::PROMPTS_GET;

    #[expect(private_interfaces, reason = "nobody else has such results")]
    fn received(mut self, _: &str, _: Option<&Known>) -> Result<Self, CallError> {
        self.messages.iter_mut().for_each(|message| drop_unsafe_icons(&mut message.content));
        Ok(self)
    }
}

impl sealed::Sealed for ReadResourceResult {
    const METHOD: &'static str = method::RESOURCES_READ;

    #[expect(private_interfaces, reason = "nobody else has such results")]
    fn received(self, _: &str, _: Option<&Known>) -> Result<Self, CallError> {
        Ok(self)
    }
}

impl<X: Transport> Client<X> {
    /// Calls a tool (`tools/call`), and comes back when it asks something. What the client can be asked is what it has handlers
    /// for, also if they are not used: see [`ClientBuilder`](crate::ClientBuilder).
    ///
    /// A round without questions is gone on with by itself.
    ///
    /// # Errors
    ///
    /// As with [`Client::call_tool`].
    pub async fn begin_tool(
        &self,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<CallOutcome<CallToolResult>, CallError> {
        self.begin(vec![("name", raw(&name)?), ("arguments", raw(&arguments)?)]).await
    }

    /// Gets a prompt (`prompts/get`), and comes back when it asks something; as [`Client::begin_tool`].
    ///
    /// # Errors
    ///
    /// As with [`Client::get_prompt`].
    pub async fn begin_prompt(
        &self,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<CallOutcome<GetPromptResult>, CallError> {
        self.begin(vec![("name", raw(&name)?), ("arguments", raw(&arguments)?)]).await
    }

    /// Reads a resource (`resources/read`), and comes back when it asks something; as [`Client::begin_tool`].
    ///
    /// # Errors
    ///
    /// As with [`Client::read_resource`].
    pub async fn begin_resource(
        &self,
        uri: &str,
    ) -> Result<CallOutcome<ReadResourceResult>, CallError> {
        self.begin(vec![("uri", raw(&uri)?)]).await
    }

    async fn begin<T: CallResult>(
        &self,
        params: Vec<(&str, Box<RawValue>)>,
    ) -> Result<CallOutcome<T>, CallError> {
        let (machine, action) = self.machine(T::METHOD, &params)?;
        self.turn(machine, action, Answering::Pause).await
    }

    /// Goes on with a call, with an answer to each of its questions, and comes back when it asks again. The limits of rounds count
    /// on where they were; the deadline begins anew.
    ///
    /// The answers are held against the questions first ([`PendingCall::check`]); if one does not fit, nothing is sent, and a
    /// clone of the continuation is as good as before.
    ///
    /// # Errors
    ///
    /// As with the call itself, and if `T` is not what the continuation's method comes to.
    pub async fn resume<T: CallResult>(
        &self,
        call: PendingCall,
        answers: &InputResponses,
    ) -> Result<CallOutcome<T>, CallError> {
        let answers = call.check(answers)?;
        let only_waits = call.questions().0.is_empty();
        let (machine, action) = self.resumed::<T>(call)?;
        let answering = if only_waits { Answering::Pause } else { Answering::These(answers) };
        self.turn(machine, action, answering).await
    }

    /// Goes on with a call to its end: its questions, and those of later rounds, go to the handlers.
    ///
    /// # Errors
    ///
    /// As with [`Client::resume`].
    pub async fn finish<T: CallResult>(&self, call: PendingCall) -> Result<T, CallError> {
        let (machine, action) = self.resumed::<T>(call)?;
        match self.turn(machine, action, Answering::Handlers).await? {
            CallOutcome::Complete(result) => Ok(result),
            CallOutcome::InputRequired(_) => {
                Err(CallError::request("a question was left to nobody"))
            }
        }
    }

    fn resumed<T: CallResult>(&self, call: PendingCall) -> Result<(Machine, Action), CallError> {
        if call.method() != T::METHOD {
            let why =
                format!("a call of {} is gone on with as one of {}", call.method(), T::METHOD);
            return Err(CallError::request(why));
        }
        let inner = &*self.inner;
        Ok(Machine::resume(call, inner.ids.clone(), self.meta(), inner.limits))
    }

    async fn turn<T: CallResult>(
        &self,
        machine: Machine,
        action: Action,
        answering: Answering,
    ) -> Result<CallOutcome<T>, CallError> {
        let target = machine.call().target();
        match self.drive(machine, action, answering).await? {
            End::Paused(call) => Ok(CallOutcome::InputRequired(call)),
            End::Completed(Completed { result, .. }) => {
                let result = read::<T>(&result)?;
                let known = self.inner.known(&target);
                result.received(&target, known.as_deref()).map(CallOutcome::Complete)
            }
        }
    }

    /// Makes a call of a kind that may ask, to its end.
    pub(crate) async fn whole<T: CallResult>(
        &self,
        target: &str,
        params: &[(&str, Box<RawValue>)],
    ) -> Result<T, CallError> {
        let result: T = self.call(T::METHOD, params).await?;
        result.received(target, self.inner.known(target).as_deref())
    }
}

fn read<T: CallResult>(result: &RawValue) -> Result<T, CallError> {
    serde_json::from_str(result.get())
        .map_err(|e| CallError::protocol(format!("malformed result of {}: {e}", T::METHOD)))
}
