//! The manual form: the handler returns its input requests and keeps its state itself.
//!
//! Use it if a call is a state machine rather than a sequence of questions, or to port a handler
//! that was written for another SDK. The state is sealed like a journal. Register such a handler
//! with [`Tool::manual`](crate::Tool::manual), or with `manual` of prompts and resources.
//!
//! ```
//! use mrtr_server::manual::{InputRequired, ManualContext, ManualOutput};
//! use mrtr_server::{Result, Tool, ToolOutput};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Draft {
//!     text: String,
//! }
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Consent {
//!     send: bool,
//! }
//!
//! async fn send(cx: ManualContext) -> Result<ManualOutput<ToolOutput>> {
//!     let Some(draft) = cx.state::<Draft>()? else {
//!         let draft = Draft { text: "Dear all".to_owned() };
//!         let question = InputRequired::new().elicit::<Consent>("send", "Send it?");
//!         return Ok(question.state(&draft).into());
//!     };
//!     let text = match cx.answers().form::<Consent>("send") {
//!         Some(Consent { send: true }) => format!("Sent: {}", draft.text),
//!         _ => "Not sent.".to_owned(),
//!     };
//!     Ok(ToolOutput::text(text).into())
//! }
//!
//! let tool = Tool::manual("send", "Sends the draft", send);
//! ```

mod context;
mod input_required;
mod responses;

pub use context::ManualContext;
pub use input_required::{InputRequired, ManualOutput};
pub use responses::Answers;
pub(crate) use responses::ManualInput;
