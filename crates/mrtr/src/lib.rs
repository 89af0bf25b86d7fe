#![doc = include_str!("../README.md")]

/// The examples of the chapters.
#[cfg(all(doctest, feature = "testing", feature = "client"))]
mod chapters {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/rounds.md")]
    mod rounds {}
    #[doc = include_str!("../../../docs/client.md")]
    mod client {}
    #[doc = include_str!("../../../docs/sdk-integration.md")]
    mod sdk_integration {}
    #[doc = include_str!("../../../docs/deploying.md")]
    mod deploying {}
}

#[cfg(feature = "client")]
mod client_set;
#[cfg(feature = "client")]
mod connect;
#[cfg(feature = "server")]
mod serve;

/// The client's loop and its parts.
#[cfg(feature = "client")]
pub mod client {
    pub use mrtr_client::{
        Action, BoxError, CallEvent, CallOutcome, CallResult, Event, InputContext, Machine,
        OutgoingRequest, PendingCall, PolicyDecision, RequestIds, RequestInfo, RoundLimits,
        Subscription, SubscriptionEvent, Transport, TransportError,
    };
}

/// Questions at the terminal.
#[cfg(feature = "terminal")]
pub mod terminal {
    pub use mrtr_client::terminal::*;
}

#[cfg(all(feature = "server", feature = "client"))]
pub use mrtr_transport::InProcess;

pub use mrtr_schema::notification::LogLevel;

/// Streamable HTTP.
pub mod http {
    pub use mrtr_transport::host_policy::HostPolicy;
    #[cfg(feature = "client")]
    pub use mrtr_transport::http::{Challenge, HttpClient, HttpClientBuilder, reqwest};
    #[cfg(feature = "server")]
    pub use mrtr_transport::http::{Endpoint, Readiness, RequestLimits, ServeOptions, serve};
}

/// Standard streams, and other streams of bytes.
pub mod stdio {
    #[cfg(feature = "client")]
    pub use mrtr_transport::stdio::{ChildServer, StreamClient};
    #[cfg(feature = "server")]
    pub use mrtr_transport::stdio::{StreamLimits, serve_stream};
}

/// The sealed state: keys from a KMS, rotation, and how to seal by other means.
#[cfg(feature = "server")]
pub mod seal {
    pub use mrtr_server::seal::*;
}

/// States that work once.
#[cfg(feature = "server")]
pub mod single_use {
    pub use mrtr_server::single_use::*;
}

/// Tests of tools: replicas in memory, and a network that fails as a test says.
#[cfg(feature = "testing")]
pub mod testing {
    pub use mrtr_server::testing::*;
}

/// The wire types of the protocol.
pub mod schema {
    pub use mrtr_schema::*;
}

#[cfg(feature = "client")]
pub use client_set::{ClientSet, ConfigError, Connection, ServerTools};
#[cfg(feature = "client")]
pub use connect::connect;
#[cfg(feature = "client")]
pub use mrtr_client::{CallError, Client, ClientBuilder};
#[cfg(feature = "macros")]
pub use mrtr_macros::{prompt, resource, resource_template, tool};
pub use mrtr_schema::elicitation::ElicitResult;
pub use mrtr_schema::meta::TraceContext;
#[cfg(feature = "server")]
pub use mrtr_server::{
    BuildError, CacheControl, Change, ChangeNotifier, ClientFeature, Clock, CompletionRequest,
    Context, ElicitOutcome, Error, Extension, ExtensionRequest, Handler, InputFuture, IntoError,
    IntoPromptResult, IntoResourceResult, IntoToolResult, Json, KeyRing, Principal, Progress,
    Prompt, PromptOutput, RequestParts, Resource, ResourceOutput, ResourceTemplate, Result, Secret,
    Server, ServerBuilder, SharedKeyRing, State, StateRequirements, Step, StepFuture, Tool,
    ToolOutput, UnixSeconds, extract, form, manual,
};
#[cfg(feature = "server")]
pub use serve::{serve, serve_stdio, shutdown};
