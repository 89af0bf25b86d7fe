//! The ids of tasks that upstreams made of calls.

use std::sync::{Arc, OnceLock};

use mrtr_server::seal::{self, Binding, Digest, Seal, Validity};
use mrtr_server::{Clock as _, Error, RequestParts, SystemClock};

/// The time in seconds for which an id works: a year. The upstream decides when its task ends, and
/// may change its mind.
const VALIDITY: u64 = 365 * 24 * 60 * 60;

/// Makes ids of the gateway from those of upstreams, and back.
///
/// An id contains the name of the upstream and its own id, sealed for the caller with the keys of
/// the server. The gateway keeps nothing, and another caller cannot use the id.
#[derive(Clone, Default)]
pub(crate) struct TaskIds(Arc<OnceLock<Arc<dyn Seal>>>);

impl TaskIds {
    /// Sets the keys, after the server was built.
    pub(crate) fn set(&self, sealer: Arc<dyn Seal>) {
        self.0.get_or_init(|| sealer);
    }

    /// Returns the id of an upstream's task for the caller.
    pub(crate) fn seal(
        &self,
        upstream: &str,
        id: &str,
        caller: &RequestParts,
    ) -> Result<String, Error> {
        let sealer = self.0.get().ok_or_else(|| Error::internal("the gateway has no keys yet"))?;
        let validity = Validity::starting(SystemClock.now(), VALIDITY);
        let body = serde_json::to_vec(&(upstream, id))?;
        seal::seal(&**sealer, &binding(caller), validity, &body).map_err(Error::internal)
    }

    /// Returns the name of the upstream and its id; `None` if the id is not one of the caller's.
    pub(crate) fn open(&self, id: &str, caller: &RequestParts) -> Option<(String, String)> {
        let sealer = self.0.get()?;
        let opened = seal::open(&**sealer, id, &binding(caller), SystemClock.now()).ok()?;
        serde_json::from_slice(opened.body()).ok()
    }
}

/// No other token has this method.
fn binding(caller: &RequestParts) -> Binding<'_> {
    Binding {
        principal: caller.principal(),
        proof_key: None,
        method: "gateway/task",
        target: "",
        arguments: Digest::from_parts(&[]),
    }
}
