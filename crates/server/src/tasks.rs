//! Tasks: calls that outlive their request (extension `io.modelcontextprotocol/tasks`).
//!
//! The journal of a call usually travels with the client, and a request that takes long is lost if
//! its replica dies. A *task* has its journal in a [`TaskStore`] instead. Any replica continues it:
//! through crashes, deployments, and days of waiting for an answer. The handler is the same one.
//!
//! ```
//! use std::time::Duration;
//!
//! use mrtr_server::tasks::{MemoryTaskStore, TaskPolicy};
//! use mrtr_server::{Context, Result, Server, Tool};
//! # async fn build(key: &str) -> Result<String> { Ok(key.to_owned()) }
//! # async fn send(report: &str, key: &str) -> Result<()> { Ok(()) }
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Approval {
//!     send: bool,
//! }
//!
//! async fn report(cx: Context) -> Result<String> {
//!     // From here on, the call is a task. The client gets its id, and can leave.
//!     cx.detach().await?;
//!     // Runs once. Its result is in the store before the handler continues.
//!     let report = cx.step("build", async |step| build(step.idempotency_key()).await).await?;
//!     // May take days, during which no replica holds anything.
//!     let Approval { send: approved } = cx.elicit("send", "Shall the report be sent?").await?;
//!     if approved {
//!         cx.step("send", async |step| send(&report, step.idempotency_key()).await).await?;
//!     }
//!     Ok("Done.".to_owned())
//! }
//!
//! let week = Duration::from_hours(7 * 24);
//! let tool = Tool::new("report", "Builds the report", report);
//! let server = Server::builder("reports", "1.0.0")
//!     .tool(tool.task(TaskPolicy::on_detach().ttl(week)))
//!     .task_store(MemoryTaskStore::new(10_000))
//!     .allow_anonymous()
//!     .ephemeral_key()
//!     .build()?;
//! # let _ = async {
//! // Continues the tasks of other replicas. `mrtr::serve` does this.
//! server.run_tasks().await;
//! # };
//! # Ok::<(), mrtr_server::BuildError>(())
//! ```
//!
//! # What is the same, and what is not
//!
//! - A client that does not declare the extension gets the call without a task, unless the policy
//!   is [`required`](TaskPolicy::required).
//! - A step whose result the handler has seen does not run again, whatever dies. A step that was in
//!   flight when its replica died runs again elsewhere, with the same [idempotency
//!   key](crate::Step::idempotency_key).
//! - Questions before the call becomes a task are rounds; later ones are input requests of the
//!   task. Answers are taken in when the handler waits for nothing else.
//! - The caller, its capabilities and scopes are kept. Headers, and the extensions of layers, are
//!   those of the request until another replica continues the task; then they are empty.
//!   [`Context::require_scope`](crate::Context::require_scope) belongs before the task: in a task,
//!   a missing scope ends it.
//! - [`Context::progress`](crate::Context::progress) sets the status message of the task.
//!   [`Context::log`](crate::Context::log) sends nothing.
//! - A step has no timeout unless it sets [one](crate::StepFuture::timeout), and the timeouts of
//!   the call do not count. When the task is cancelled or the server shuts down, no step begins,
//!   and those in flight have 8 s.
//! - One result has at most 256 KiB. A journal has at most 4 MiB, and so have all answers together.
//! - A handler whose new version does not fit a journal is tried again every minute, until the task
//!   expires: an unsuitable deployment loses no task.
//!
//! Everything in the store is sealed with the keys of the server, and bound to its place. What a
//! client may see is bound to the caller: for anybody else, the task does not exist. Retiring keys
//! are needed for as long as tasks live.

mod call;
mod holding;
mod keep;
mod keeper;
mod memory;
mod policy;
pub mod row;
mod run;
mod sealed;
mod service;
mod store;
mod updates;
mod view;

pub(crate) use call::StoredCall;
pub(crate) use holding::Holding;
pub(crate) use keeper::{either, run_tasks};
pub use memory::MemoryTaskStore;
pub use policy::TaskPolicy;
pub(crate) use policy::TaskStart;
pub(crate) use run::{Run, ToolFuture};
pub(crate) use sealed::{Part, TaskSeal};
pub(crate) use service::{TaskService, is_full, is_unavailable, within_request};
pub(crate) use store::ErasedTaskStore;
pub(crate) use store::task_handler;
pub use store::{
    Claim, Created, HeldTask, Lease, LeaseId, NewTask, RunEnd, StoredAnswer, StoredStatus,
    TaskHandler, TaskKey, TaskRecord, TaskStore, TaskStoreError, TaskWrite, UnixMillis, Verdict,
};
pub use updates::TaskUpdates;
pub(crate) use updates::{NextTaskFuture, TaskSource, TaskSubscriptions};
pub(crate) use view::{View, ViewOutcome};
