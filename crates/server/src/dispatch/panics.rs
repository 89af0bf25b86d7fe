//! Panics of functions of the application.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use mrtr_schema::jsonrpc::ErrorObject;

use crate::handler::BoxFuture;
use crate::rounds::Fault;

/// Calls a function of the application. A panic becomes an internal error.
pub(super) fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, ErrorObject> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let fault = Fault::panicked(&*panic);
        tracing::error!(target: "mrtr::rounds", %fault, "the call failed");
        ErrorObject::internal("Internal error")
    })
}

/// Awaits a future of the application. A panic, in `call` or in the future, becomes an internal
/// error.
pub(super) async fn catch_panics<T>(call: impl FnOnce() -> BoxFuture<T>) -> Result<T, ErrorObject> {
    let mut future = catch_panic(call)?;
    poll_fn(|cx| match catch_panic(|| future.as_mut().poll(cx)) {
        Ok(polled) => polled.map(Ok),
        Err(error) => Poll::Ready(Err(error)),
    })
    .await
}
