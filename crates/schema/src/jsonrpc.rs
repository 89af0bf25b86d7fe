//! The JSON-RPC 2.0 envelope and the error codes of MCP (specification: basic, "Messages" and
//! "Error Codes").

mod error;
mod id;
mod message;
mod params;
mod request;
mod response;

pub use error::{ErrorObject, code};
pub use id::RequestId;
pub use message::Message;
pub use params::Params;
pub use request::{Notification, Request};
pub use response::Response;
