//! The events and actions of a call's state machine.

use std::time::Duration;

use mrtr_schema::input::{InputRequests, InputResponses};
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use serde_json::value::RawValue;

/// An event that the driver reports to a [`Machine`](crate::Machine).
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The response to the last [`Action::Send`].
    Response(Result<Box<RawValue>, ErrorObject>),
    /// The responses to the last [`Action::RequestInput`], one for each input request.
    Input(InputResponses),
    /// The delay of the last [`Action::Wait`] has elapsed.
    Waited,
    /// The last [`Action::Send`] was interrupted before its response arrived, and is to be sent
    /// again under a new id. The server may have acted on it, so report this only for calls that
    /// may run twice, or if [`Machine::can_resend`](crate::Machine::can_resend).
    Interrupted,
}

/// An action that a [`Machine`](crate::Machine) requests from its driver.
#[derive(Debug)]
#[non_exhaustive]
pub enum Action {
    /// Send this request, and report [`Event::Response`].
    Send(Request),
    /// Answer these input requests, and report [`Event::Input`].
    RequestInput(InputRequests),
    /// Wait for about this long, and report [`Event::Waited`]. Before a poll of a task
    /// ([`Machine::is_task`](crate::Machine::is_task)), wait at least this long.
    Wait(Duration),
    /// The call is complete with this result. Its `resultType` is `complete`, or one of those that
    /// [`Machine::accept_result_types`](crate::Machine::accept_result_types) added.
    Complete(Box<RawValue>),
}
