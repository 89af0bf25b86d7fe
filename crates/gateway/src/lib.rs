#![doc = include_str!("../README.md")]

mod arguments;
mod builder;
mod features;
mod forward;
mod gateway;
mod listed;
mod task_ids;
mod task_updates;
mod tasks;
mod updates;
mod upstream;

pub use builder::GatewayBuilder;
pub use gateway::{Gateway, RefreshError};
