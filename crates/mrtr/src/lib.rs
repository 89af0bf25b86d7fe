#![doc = include_str!("../README.md")]

// The examples of the guide need these features.
#[cfg(all(
    any(doc, doctest),
    feature = "auth-client",
    feature = "auth-connect",
    feature = "auth-server",
    feature = "client",
    feature = "gateway",
    feature = "macros",
    feature = "middleware",
    feature = "openapi",
    feature = "testing",
    feature = "tls"
))]
pub mod guide;

#[cfg(all(feature = "client", feature = "legacy"))]
mod all_client_revisions;
#[cfg(all(feature = "server", feature = "legacy"))]
mod all_revisions;
#[cfg(feature = "client")]
mod child_connection;
#[cfg(feature = "client")]
mod client_set;
#[cfg(feature = "client")]
mod connect;
#[cfg(all(feature = "client", not(feature = "legacy")))]
mod current_client_revision;
#[cfg(all(feature = "server", not(feature = "legacy")))]
mod current_revision;
#[cfg(feature = "client")]
mod http_connection;
#[cfg(feature = "macros")]
mod macros;
#[cfg(feature = "server")]
mod serve;

#[cfg(all(feature = "client", feature = "legacy"))]
use all_client_revisions as client_revisions;
#[cfg(all(feature = "server", feature = "legacy"))]
use all_revisions as revisions;
#[cfg(all(feature = "client", not(feature = "legacy")))]
use current_client_revision as client_revisions;
#[cfg(all(feature = "server", not(feature = "legacy")))]
use current_revision as revisions;

/// MCP Apps: UI resources, which show the results of tools.
pub mod apps {
    #[cfg(feature = "client")]
    pub use mrtr_client::UiResource;
    pub use mrtr_schema::apps::*;
}

/// Authorization by OAuth 2.1.
#[cfg(any(feature = "auth-client", feature = "auth-connect", feature = "auth-server"))]
pub mod auth {
    pub use mrtr_auth::*;
    #[cfg(feature = "auth-server")]
    pub use mrtr_transport::{GrantedScopes, ProofKey};
}

/// The client's loop over the rounds of a call, and the parts of it.
#[cfg(feature = "client")]
pub mod client {
    pub use mrtr_client::{
        Action, BoxError, CallEvent, CallOutcome, CallResult, Event, InputContext, Machine,
        OutgoingRequest, PendingCall, PolicyDecision, RequestIds, RequestInfo, RoundLimits,
        Subscription, SubscriptionEvent, Transport, TransportError, UserTime, UserWait,
    };
}

/// Handlers that ask the user at the terminal.
#[cfg(feature = "terminal")]
pub mod terminal {
    pub use mrtr_client::terminal::*;
}

#[cfg(all(feature = "server", feature = "client"))]
pub use mrtr_transport::InProcess;

pub use mrtr_schema::notification::LogLevel;

/// Streamable HTTP.
pub mod http {
    #[cfg(feature = "client")]
    pub use crate::http_connection::HttpConnection;
    pub use mrtr_transport::host_policy::HostPolicy;
    #[cfg(feature = "client")]
    pub use mrtr_transport::http::{
        Attempt, AttemptResponse, Challenge, CredentialFuture, Credentials, HttpClient,
        HttpClientBuilder,
    };
    #[cfg(feature = "server")]
    pub use mrtr_transport::http::{
        Endpoint, Readiness, RequestLimits, ResponseBody, ServeOptions, serve,
    };
}

/// Legacy revisions of the protocol: 2025-03-26, 2025-06-18 and 2025-11-25.
#[cfg(feature = "legacy")]
pub mod legacy {
    pub use mrtr_legacy::*;
}

/// The wire formats of the proposals that led to multi round-trip requests.
#[cfg(feature = "dialects")]
pub mod dialects {
    pub use mrtr_dialects::*;
}

/// Servers whose tools, prompts and resources are those of other servers.
#[cfg(feature = "gateway")]
pub mod gateway {
    pub use mrtr_gateway::*;
}

/// Tools from an OpenAPI document.
#[cfg(feature = "openapi")]
pub mod openapi {
    pub use mrtr_openapi::*;
}

/// Traits and types for implementing your own transport.
#[cfg(any(feature = "client", feature = "server"))]
pub mod transport {
    pub use mrtr_transport::{
        BoxError, IncomingRequest, NotificationSender, OutgoingRequest, RequestHandler, Transport,
        TransportError,
    };
}

/// Standard streams, and other byte streams.
pub mod stdio {
    #[cfg(feature = "client")]
    pub use crate::child_connection::ChildConnection;
    #[cfg(feature = "client")]
    pub use mrtr_transport::stdio::{ChildServer, StreamClient};
    #[cfg(feature = "server")]
    pub use mrtr_transport::stdio::{StreamLimits, serve_stream};
}

/// The sealed request state: keys from a KMS, key rotation, and custom seals.
#[cfg(feature = "server")]
pub mod seal {
    pub use mrtr_server::seal::*;
}

/// Middleware: layers around tools, groups of features and the server.
#[cfg(feature = "server")]
pub mod middleware {
    #[cfg(feature = "middleware")]
    pub use mrtr_middleware::*;
    pub use mrtr_server::middleware::*;
}

/// Request states that are accepted once.
#[cfg(feature = "server")]
pub mod single_use {
    pub use mrtr_server::single_use::*;
}

/// Tasks: calls that outlive their request.
#[cfg(feature = "server")]
pub mod tasks {
    pub use mrtr_server::tasks::*;
    #[cfg(feature = "tasks-postgres")]
    pub use mrtr_stores::PostgresTaskStore;
    #[cfg(feature = "tasks-redis")]
    pub use mrtr_stores::RedisTaskStore;
    #[cfg(feature = "tasks-sqlite")]
    pub use mrtr_stores::SqliteTaskStore;
}

/// Development of servers: the content of request states.
#[cfg(feature = "development")]
pub mod development {
    pub use mrtr_server::development::*;
}

/// Tests of handlers: replicas in memory, and a network with simulated failures.
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
#[cfg(feature = "macros")]
pub use macros::{prompt, resource, resource_template, tool};
#[cfg(feature = "client")]
pub use mrtr_client::{CallError, Client, ClientBuilder};
pub use mrtr_schema::elicitation::ElicitResult;
pub use mrtr_schema::meta::TraceContext;
#[cfg(feature = "server")]
pub use mrtr_server::{
    AtMostOnce, BuildError, CacheControl, Change, ChangeNotifier, ClientFeature, Clock,
    CompletionRequest, Context, ElicitOutcome, Error, Extension, ExtensionRequest, Feature,
    FeatureGroup, Handler, InputFuture, IntoError, IntoPromptResult, IntoResourceResult,
    IntoToolResult, Json, KeyRing, Principal, Progress, Prompt, PromptOutput, RequestParts,
    Resource, ResourceOutput, ResourceTemplate, ResourceUri, Result, Secret, Server, ServerBuilder,
    ServerUpdate, SharedKeyRing, State, StateRequirements, Step, StepFuture, Tool, ToolOutput,
    UnixSeconds, extract, form, manual,
};
#[cfg(feature = "server")]
pub use serve::{endpoint, serve, serve_stdio, shutdown};
