//! Which functions can be handlers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use mrtr_schema::Object;
use mrtr_schema::json;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::form::schema_of;

/// A handler's future, without its type.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A handler, without its type: takes the arguments as JSON. An outer error says why they do not fit. The function itself
/// is called when the future is first polled, and not before.
pub(crate) type Erased<O> = Box<dyn Fn(Context, &str) -> Called<O> + Send + Sync>;

/// A handler that was called.
pub(crate) type Called<O> = Result<BoxFuture<Result<O, Error>>, String>;

/// A function that can handle calls: `async fn(Context, Arguments) -> Result<Output>`, or without
/// arguments `async fn(Context) -> Result<Output>`.
///
/// `Arguments` implements [`DeserializeOwned`] and [`JsonSchema`], and is [`Send`]. `Output` turns into
/// the kind of output at hand; a tool's may also be [`Json`](crate::Json). The future is [`Send`]; it runs again from its first line on every leg.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a handler",
    note = "a handler is `async fn(Context, Args) -> mrtr::Result<Output>` or `async fn(Context) -> mrtr::Result<Output>`",
    note = "`Args` must implement `serde::Deserialize` and `schemars::JsonSchema`; `Output` must turn into a `ToolOutput` (or `PromptOutput`, or `ResourceOutput`); a tool's may be `Json<T>`",
    note = "the function's future must be `Send`: hold no `Rc` or lock guard across an await"
)]
pub trait Handler<Args, Output>: Send + Sync + 'static {
    #[doc(hidden)]
    fn erase(self) -> Parts<Output>;
}

/// A handler, and what its type says.
pub struct Parts<O> {
    /// The schema of the arguments.
    pub(crate) arguments: Object,
    /// The schema of the output, where it has one.
    pub(crate) output: Option<Object>,
    pub(crate) call: Erased<O>,
}

/// What a handler may return, where an `O` is wanted.
pub trait IntoOutput<O> {
    /// The schema of all that it can be.
    fn schema() -> Option<Object>;
    /// An error if it cannot be written as JSON.
    fn into_output(self) -> Result<O, Error>;
}

impl<R: Into<O>, O> IntoOutput<O> for R {
    fn schema() -> Option<Object> {
        None
    }

    fn into_output(self) -> Result<O, Error> {
        Ok(self.into())
    }
}

/// Reads arguments. The line and column of a mistake are none of the caller's: what they sent was written anew on its way.
fn read<A: DeserializeOwned>(arguments: &str) -> Result<A, String> {
    json::from_str(arguments).map_err(|error| match error.path() {
        "" => error.reason(),
        path => format!("{path}: {}", error.reason()),
    })
}

/// No arguments.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct None {}

/// The schema of no arguments.
pub(crate) fn no_arguments() -> Object {
    Object::from_iter([
        ("type".to_owned(), json!("object")),
        ("additionalProperties".to_owned(), json!(false)),
    ])
}

impl<F, A, Fut, R, O> Handler<(Context, A, R), O> for F
where
    F: Fn(Context, A) -> Fut + Send + Sync + 'static,
    A: DeserializeOwned + JsonSchema + Send + 'static,
    Fut: Future<Output = Result<R, Error>> + Send + 'static,
    R: IntoOutput<O>,
{
    fn erase(self) -> Parts<O> {
        let handler = Arc::new(self);
        let call: Erased<O> = Box::new(move |cx, arguments| {
            let arguments: A = read(arguments)?;
            let handler = Arc::clone(&handler);
            Ok(Box::pin(async move { handler(cx, arguments).await?.into_output() }))
        });
        Parts { arguments: schema_of::<A>(), output: R::schema(), call }
    }
}

impl<F, Fut, R, O> Handler<(Context, R), O> for F
where
    F: Fn(Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Error>> + Send + 'static,
    R: IntoOutput<O>,
{
    fn erase(self) -> Parts<O> {
        let handler = Arc::new(self);
        let call: Erased<O> = Box::new(move |cx, arguments| {
            let None {} = read(arguments)?;
            let handler = Arc::clone(&handler);
            Ok(Box::pin(async move { handler(cx).await?.into_output() }))
        });
        Parts { arguments: no_arguments(), output: R::schema(), call }
    }
}
