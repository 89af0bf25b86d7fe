#![doc = include_str!("../README.md")]

pub mod audit;
pub mod rate_limit;

pub use audit::Audit;
pub use rate_limit::RateLimit;
