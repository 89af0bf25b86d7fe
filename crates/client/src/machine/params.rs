//! The parameters of a request.

use mrtr_schema::input::InputResponses;
use mrtr_schema::meta::RequestMeta;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::pending_call::PendingCall;

/// The parameter whose members are added to the client's own.
pub(super) const META: &str = "_meta";

/// The parameters of one request.
pub(super) struct RequestParams<'a> {
    pub(super) call: &'a PendingCall,
    pub(super) responses: Option<&'a InputResponses>,
    /// The request is one of the call's task, and not the call itself.
    pub(super) concerns_task: bool,
    pub(super) meta: RequestMeta,
}

impl Serialize for RequestParams<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(META, &self.meta)?;
        if self.concerns_task {
            map.serialize_entry("taskId", &self.call.task_id())?;
        } else {
            self.write_call(&mut map)?;
        }
        if let Some(responses) = self.responses {
            map.serialize_entry("inputResponses", responses)?;
        }
        if let Some(state) = &self.call.state {
            map.serialize_entry("requestState", state)?;
        }
        map.end()
    }
}

impl RequestParams<'_> {
    /// Writes the parameters that the caller passed.
    fn write_call<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let is_continued = self.responses.is_some() || self.call.state.is_some();
        for (name, value) in &self.call.params {
            // The caller may have started the call with input of an earlier one. It belongs to the
            // first request only.
            let is_outdated =
                is_continued && matches!(name.as_str(), "inputResponses" | "requestState");
            if name != META && !is_outdated {
                map.serialize_entry(name, value)?;
            }
        }
        Ok(())
    }
}
