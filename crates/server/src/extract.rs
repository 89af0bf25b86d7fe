//! Extractors: the parameters of a handler besides its arguments.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use http::HeaderMap;
use mrtr_codec::Principal;
use mrtr_schema::capabilities::Implementation;

use crate::context::Context;
use crate::error::Error;
use crate::handler_context::HandlerContext;
use crate::manual::ManualContext;
use crate::request_parts::RequestParts;
use crate::rounds::Round;
use crate::state::StateRequirements;

/// Creates a value from a request: the trait of handler parameters.
///
/// Every parameter before a handler's arguments is one of [`Context`], [`Progress`] and the
/// implementors of this trait: [`State`], [`Extension`], [`Principal`], [`HeaderMap`],
/// [`Implementation`] (the client's name and version, if it sent them), and your own types.
///
/// Extraction runs again on every round, before the handler's first line. It must have no side
/// effects.
///
/// ```
/// use mrtr_server::extract::FromRequestParts;
/// use mrtr_server::{Context, Error, RequestParts, Result};
///
/// /// The tenant that a gateway named in a header.
/// struct Tenant(String);
///
/// impl FromRequestParts for Tenant {
///     async fn from_request_parts(parts: &RequestParts) -> Result<Self> {
///         let tenant = parts.headers().get("x-tenant").and_then(|value| value.to_str().ok());
///         Ok(Self(tenant.ok_or_else(|| Error::invalid("missing header x-tenant"))?.to_owned()))
///     }
/// }
///
/// async fn greet(Tenant(tenant): Tenant, _: Context) -> String {
///     format!("Hello, {tenant}")
/// }
/// # let _ = mrtr_server::Tool::new("greet", "Greets the tenant", greet);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an extractor",
    note = "parameters before the last are extractors: `Context`, `Progress`, `State<T>`, `Extension<T>`, `Principal`, `HeaderMap`, or a type that implements `FromRequestParts`",
    note = "the arguments of the call are the last parameter: a type that implements `serde::Deserialize` and `schemars::JsonSchema`"
)]
pub trait FromRequestParts: Sized {
    /// Extracts the value.
    ///
    /// # Errors
    ///
    /// An error ends the request as if the handler had returned it.
    fn from_request_parts(parts: &RequestParts)
    -> impl Future<Output = Result<Self, Error>> + Send;

    /// Declares the application state that extraction needs, so that `ServerBuilder::build` finds
    /// what is missing. Default: none.
    fn state_requirements(_requirements: &mut StateRequirements) {}
}

/// Extracts application state given to [`ServerBuilder::state`](crate::ServerBuilder::state).
///
/// Building a server fails if a handler extracts state of a type that was not given.
///
/// ```
/// use mrtr_server::{Server, State, Tool};
///
/// #[derive(Clone)]
/// struct Inventory {
///     items: u32,
/// }
///
/// async fn count(State(inventory): State<Inventory>) -> String {
///     format!("{} items", inventory.items)
/// }
///
/// let server = Server::builder("shop", "1.0.0")
///     .tool(Tool::new("count", "Counts the inventory", count))
///     .state(Inventory { items: 3 })
///     .allow_anonymous()
///     .ephemeral_key()
///     .build()?;
/// # Ok::<(), mrtr_server::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromRequestParts for State<T> {
    async fn from_request_parts(parts: &RequestParts) -> Result<Self, Error> {
        let missing = || missing("state", std::any::type_name::<T>());
        parts.state::<T>().cloned().map(Self).ok_or_else(missing)
    }

    fn state_requirements(requirements: &mut StateRequirements) {
        requirements.require::<T>();
    }
}

/// Extracts a value that a layer inserted into the request's extensions.
///
/// A missing value fails the request with an internal error, which names the type in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extension<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromRequestParts for Extension<T> {
    async fn from_request_parts(parts: &RequestParts) -> Result<Self, Error> {
        let missing = || missing("extension", std::any::type_name::<T>());
        parts.extensions().get::<T>().cloned().map(Self).ok_or_else(missing)
    }
}

macro_rules! deref {
    ($($wrapper:ident),*) => {$(
        impl<T> Deref for $wrapper<T> {
            type Target = T;

            fn deref(&self) -> &T {
                &self.0
            }
        }

        impl<T> DerefMut for $wrapper<T> {
            fn deref_mut(&mut self) -> &mut T {
                &mut self.0
            }
        }
    )*};
}
deref!(State, Extension);

impl FromRequestParts for Principal {
    async fn from_request_parts(parts: &RequestParts) -> Result<Self, Error> {
        let anonymous = || Error::invalid("This request needs an authenticated caller.");
        parts.principal().cloned().ok_or_else(anonymous)
    }
}

impl FromRequestParts for Option<Principal> {
    async fn from_request_parts(parts: &RequestParts) -> Result<Self, Error> {
        Ok(parts.principal().cloned())
    }
}

impl FromRequestParts for HeaderMap {
    async fn from_request_parts(parts: &RequestParts) -> Result<Self, Error> {
        Ok(parts.headers().clone())
    }
}

impl FromRequestParts for Option<Implementation> {
    async fn from_request_parts(parts: &RequestParts) -> Result<Self, Error> {
        Ok(parts.client().cloned())
    }
}

fn missing(kind: &str, name: &str) -> Error {
    Error::internal(format!("missing {kind} of type `{name}`, which the handler extracts"))
}

/// Extracts a handle that reports progress.
///
/// Cheap to clone; it can be moved into a step or a task.
///
/// ```
/// use mrtr_server::{Context, Progress, Result};
///
/// async fn import(cx: Context, progress: Progress) -> Result<String> {
///     for row in 0..100 {
///         progress.report(f64::from(row), Some(100.0), None);
///     }
///     Ok("100 rows".to_owned())
/// }
/// # let _ = mrtr_server::Tool::new("import", "Imports rows", import);
/// ```
#[derive(Clone)]
pub struct Progress(pub(crate) Arc<Round>);

impl Progress {
    /// Reports progress to the client, if it asked for it. See [`Context::progress`].
    pub fn report(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        self.0.report_progress(progress, total, message);
    }
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Progress")
    }
}

/// Tells implementations of [`Extract`] apart.
#[derive(Debug)]
pub struct ViaParts(());

/// Tells implementations of [`Extract`] apart.
#[derive(Debug)]
pub struct ViaContext(());

/// Creates a handler parameter from the handler's context `C`. Implement [`FromRequestParts`].
#[doc(hidden)]
pub trait Extract<C, Via>: Sized {
    fn extract(context: &C) -> impl Future<Output = Result<Self, Error>> + Send;

    fn state_requirements(_requirements: &mut StateRequirements) {}
}

impl<C: HandlerContext, T: FromRequestParts> Extract<C, ViaParts> for T {
    fn extract(context: &C) -> impl Future<Output = Result<Self, Error>> + Send {
        T::from_request_parts(context.parts())
    }

    fn state_requirements(requirements: &mut StateRequirements) {
        T::state_requirements(requirements);
    }
}

impl Extract<Self, ViaContext> for Context {
    async fn extract(context: &Self) -> Result<Self, Error> {
        Ok(context.clone())
    }
}

impl Extract<Self, ViaContext> for ManualContext {
    async fn extract(context: &Self) -> Result<Self, Error> {
        Ok(context.clone())
    }
}

impl<C: HandlerContext> Extract<C, ViaContext> for Progress {
    async fn extract(context: &C) -> Result<Self, Error> {
        Ok(Self(Arc::clone(context.round())))
    }
}
