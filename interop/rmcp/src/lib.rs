//! The example in the README of `mrtr-codec`: a tool on rmcp with a sealed state.

pub mod answers;

use std::error::Error;
use std::sync::Arc;

use rmcp::handler::server::{tool::RequestState, wrapper::Parameters};
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, ErrorData, InputRequiredResult};
use rmcp::{schemars::JsonSchema, tool, tool_router};

#[derive(Clone)]
pub struct Booking {
    keys: Arc<KeyRing>,
}

#[derive(JsonSchema, serde::Deserialize, serde::Serialize)]
pub struct Book {
    people: u32,
}

// The README shows the code from here
use mrtr_codec::{Binding, Digest, KeyRing, UnixSeconds, Validity, open, seal};

#[tool_router]
impl Booking {
    /// Books a table, in two rounds.
    #[tool]
    async fn book(&self, RequestState(state): RequestState, Parameters(args): Parameters<Book>) -> Result<CallToolResponse, ErrorData> {
        let now = UnixSeconds(std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs());
        let json = serde_json::to_string(&args).map_err(internal)?;
        let arguments = Digest::from_json(Some(&json)).map_err(internal)?;
        let binding = Binding { principal: None, proof_key: None, method: "tools/call", target: "book", arguments };
        let Some(token) = state else {
            let state = seal(&*self.keys, &binding, Validity::starting(now, 600), b"table 7").map_err(internal)?;
            return Ok(InputRequiredResult::from_request_state(state).into());
        };
        let opened = open(&*self.keys, &token, &binding, now)
            .map_err(|_| ErrorData::invalid_params("Invalid or expired requestState", None))?;
        let held = String::from_utf8_lossy(opened.body());
        Ok(CallToolResult::success(vec![ContentBlock::text(held)]).into())
    }
}

fn internal(error: impl Error) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
// to here.

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_example_books_a_table() -> Result<(), Box<dyn Error>> {
        let secret = mrtr_codec::Secret::generate()?;
        let keys = KeyRing::builder("https://book.example/mcp").active(secret).build()?;
        let booking = Booking { keys: Arc::new(keys) };
        let call = async |state: Option<&String>, people| {
            booking.book(RequestState(state.cloned()), Parameters(Book { people })).await
        };
        let CallToolResponse::InputRequired(first) = call(None, 2).await? else {
            return Err("the tool did not ask".into());
        };
        let state = first.request_state.as_ref();
        assert!(call(state, 3).await.is_err(), "a state must not open with other arguments");
        let CallToolResponse::Complete(done) = call(state, 2).await? else {
            return Err("the call did not complete".into());
        };
        assert_eq!(done.content, [ContentBlock::text("table 7")]);
        Ok(())
    }

    #[test]
    fn the_readme_shows_this_code() {
        let (readme, here) = (include_str!("../../../crates/codec/README.md"), include_str!("lib.rs"));
        let shown = here.split("// The README shows the code from here\n").nth(1).unwrap();
        let shown = shown.split("// to here.").next().unwrap();
        assert!(shown.lines().count() < 30 && readme.contains(shown));
    }
}
