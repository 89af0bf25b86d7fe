//! A model of tasks that is checked exhaustively.
//!
//! The store of the model is the real [`TaskRow`](mrtr_server::tasks::row::TaskRow), which defines
//! what each operation of a task store does. Around it, replicas claim, run, and write as the
//! server does; they crash, are suspended for longer than their lease, and lose replies. A client
//! answers twice, and may cancel. [`check`] visits every state that these can reach within a
//! [`Scale`], and reports the [`Rule`]s that one of them breaks.
//!
//! A [`Fault`] breaks the store or the replicas on purpose: the check has to find it.

mod actions;
mod check;
mod history;
mod run;
mod scale;
mod state;
mod store;

pub use check::{Report, check};
pub use history::{Rule, Visited};
pub use scale::{Fault, Scale};
