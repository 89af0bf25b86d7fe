//! Tasks in PostgreSQL under fire: replicas, the server of the store, and the connections between
//! them break while clients call. `cargo xtask chaos --tasks` runs it.

mod check;
mod clients;
mod database;
mod drive;
mod events;
mod faults;
mod history;
mod invariants;
mod link;
mod observed;
mod record;
mod replica;
mod scenario;
mod summary;
mod workload;

pub(crate) use replica::run as serve;
pub(crate) use scenario::run;
