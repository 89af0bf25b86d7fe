//! Tasks: calls that outlive their request (extension `io.modelcontextprotocol/tasks`, revision
//! 2026-07-28).

mod detailed;
mod operations;
mod task;

pub use detailed::{DetailedTask, TaskNotification, TaskState};
pub use operations::{
    CancelTaskParams, CancelTaskResult, CreateTaskResult, GetTaskParams, GetTaskResult,
    UpdateTaskParams, UpdateTaskResult,
};
pub use task::{Task, TaskStatus};

/// The identifier of the extension, in the `extensions` of the client's and the server's
/// capabilities. Its settings are an empty object.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The `resultType` of a [`CreateTaskResult`]. No other result has it.
pub const RESULT_TYPE: &str = "task";
