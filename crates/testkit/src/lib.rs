//! What the project's own tests share: the simulation, and the bodies of the fuzz targets. What tests of tools need is public,
//! in `mrtr::testing`.

pub mod fuzz;
pub mod random;
pub mod simulate;

pub use mrtr_server::testing::{Exchange, Replicas, RequestLog, TestClock};
