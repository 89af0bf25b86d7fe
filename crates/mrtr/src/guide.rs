//! The guide: chapters on writing, calling, testing and operating servers.
//!
//! | chapter | for |
//! |---|---|
//! | [`start`] | a first server, from hello world to two replicas |
//! | [`features`] | tools, prompts and resources: results, suggestions, progress |
//! | [`rounds`] | authors of handlers: the execution model, recipes, mistakes |
//! | [`tasks`] | calls that outlive their request: policies, stores, leases, deployments |
//! | [`clients`] | authors of clients: handlers, errors, tokens, suspended calls |
//! | [`testing`] | tests of handlers: replicas in memory, lost responses, a virtual clock |
//! | [`deploying`] | operators: keys, load balancers, upgrades, limits, metrics |
//! | [`security`] | what the sealed state promises, and what a server must do itself |
//! | [`authorization`] | servers behind OAuth, clients that log in, scopes of calls |
//! | [`composition`] | groups of tools, tools that change, layers, rate limits, gateways |
//! | [`apps`] | HTML that shows the results of tools in hosts: servers, hosts, security |
//! | [`from_rmcp`] | authors who use rmcp: what corresponds to what, and what differs |
//! | [`sdk_integration`] | authors of SDKs and gateways that use one crate alone |
//!
//! Terms are defined in the [glossary]. The [examples] are programs of one file each.
//!
//! [glossary]: https://github.com/mrtr-rs/mrtr/blob/main/docs/glossary.md
//! [examples]: https://github.com/mrtr-rs/mrtr/tree/main/examples

#[doc = include_str!("guide/start.md")]
pub mod start {}

#[doc = include_str!("guide/features.md")]
pub mod features {}

#[doc = include_str!("guide/rounds.md")]
pub mod rounds {}

#[doc = include_str!("guide/tasks.md")]
pub mod tasks {}

#[doc = include_str!("guide/clients.md")]
pub mod clients {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/deploying.md")]
pub mod deploying {}

#[doc = include_str!("guide/security.md")]
pub mod security {}

#[doc = include_str!("guide/authorization.md")]
pub mod authorization {}

#[doc = include_str!("guide/composition.md")]
pub mod composition {}

#[doc = include_str!("guide/apps.md")]
pub mod apps {}

#[doc = include_str!("guide/from_rmcp.md")]
pub mod from_rmcp {}

#[doc = include_str!("guide/sdk_integration.md")]
pub mod sdk_integration {}
