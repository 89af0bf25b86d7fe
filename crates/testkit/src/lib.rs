//! Shared parts of the project's own tests: the simulation, and the bodies of the fuzz targets. The
//! public helpers for tests of tools are in `mrtr::testing`.

pub mod fuzz;
mod issuer;
mod log_lines;
mod memory_bus;
mod ports;
pub mod random;
#[cfg(unix)]
pub mod servers;
pub mod simulate;
mod temp_folder;

pub use issuer::Issuer;
pub use log_lines::LogLines;
pub use memory_bus::{BusChannel, MemoryBus};
pub use mrtr_server::testing::{Exchange, Replicas, RequestLog, TestClock};
pub use ports::free_ports;
pub use temp_folder::TempFolder;
