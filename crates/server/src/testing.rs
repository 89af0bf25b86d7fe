//! Tests of tools, prompts and resources that ask: replicas in memory, a clock that is set by hand, and a call with a person
//! who answers as the test says, on a network that fails as the test says. (Feature `testing`.)
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! use mrtr_server::testing::{TestCall, Fault, Replicas};
//! use mrtr_server::{Context, KeyRing, Result, Server, SharedKeyRing, Tool};
//! use serde_json::json;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Seat {
//!     place: String,
//! }
//!
//! async fn book(cx: Context) -> Result<String> {
//!     let table: u8 = cx.step("hold", async |_| Ok(4)).await?;
//!     let seat: Seat = cx.elicit("seat", "Where would you like to sit?").await?;
//!     Ok(format!("Table {table}, {}.", seat.place))
//! }
//!
//! let ring = SharedKeyRing::new(KeyRing::ephemeral()?);
//! let replica = || {
//!     let server = Server::builder("booking", "1").sealer(ring.clone()).allow_anonymous();
//!     server.tool(Tool::new("book", "Books a table", book)).build()
//! };
//! // Each request goes to the other one.
//! let fleet = Replicas::new([replica()?, replica()?]);
//!
//! let story = TestCall::tool("book", json!({}))
//!     .answer("seat", json!({ "place": "outside" }))
//!     .fault(2, Fault::Lost)
//!     .run(&fleet)
//!     .await?;
//! assert_eq!(story.text(), "Table 4, outside.");
//! assert_eq!(story.rounds(), [["seat"]]);
//! // What was lost was the second response, and the step was done by the first.
//! assert_eq!(story.runs("hold"), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A fleet is an [`Transport`](mrtr_transport::Transport), so a client talks to it as to any server. For a test of an upgrade, or
//! of a rotation of keys, put replicas of both kinds into one fleet.

mod call;
mod replicas;
mod steps;

pub use call::{Fault, TestCall, TestError, Transcript};
pub use replicas::{Leg, Log, Replicas, TestClock};
pub use steps::StepBegun;
pub(crate) use steps::StepLog;
