//! Multi round-trip requests: input requests of the server, and the client's responses to them
//! (specification: basic patterns, "Multi Round-Trip Requests").

mod request;
mod response;
mod result;

pub use request::{InputRequest, InputRequests};
pub use response::InputResponses;
pub use result::InputRequiredResult;
