//! Tests of handlers: replicas in memory, a clock set by hand, scripted answers, and network
//! faults. (Feature `testing`.)
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! use mrtr_server::testing::{Fault, Replicas, TestCall};
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
//! // Requests alternate between the two replicas.
//! let replicas = Replicas::new([replica()?, replica()?]);
//!
//! let transcript = TestCall::tool("book", json!({}))
//!     .answer("seat", json!({ "place": "outside" }))
//!     .fault(2, Fault::ResponseLost)
//!     .run(&replicas)
//!     .await?;
//! assert_eq!(transcript.text(), "Table 4, outside.");
//! assert_eq!(transcript.rounds(), [["seat"]]);
//! // The response of round 2 was lost; the step had run in round 1.
//! assert_eq!(transcript.step_runs("hold"), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! [`Replicas`] is a [`Transport`](mrtr_transport::Transport), so any client can talk to it. To
//! test an upgrade or a key rotation, put replicas with old and new handlers or keys side by side.
//!
//! [`task_store_contract`] tests a [`TaskStore`](crate::tasks::TaskStore) of your own.

mod call;
mod replicas;
mod steps;
mod task_store;

pub use call::{Fault, TestCall, TestError, Transcript};
pub use replicas::{Exchange, Replicas, RequestLog, TestClock};
pub use steps::StepExecution;
pub(crate) use steps::StepLog;
pub use task_store::task_store_contract;
