//! Handlers: async functions of extractors and arguments.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use mrtr_schema::{Object, json};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;
use crate::extract::Extract;
use crate::form::schema_of;
use crate::handler_context::{HandlerContext, Invocation};
use crate::manual::ManualOutput;
use crate::response::IntoOutput;
use crate::state::StateRequirements;

/// The future of a handler, boxed.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A handler without its type. It takes the arguments as JSON. The function itself is called when
/// the future is first polled.
pub(crate) type ErasedHandler<O> = Box<dyn Fn(Invocation, &str) -> HandlerCall<O> + Send + Sync>;

/// A handler's future, or the reason why its arguments are invalid.
pub(crate) type HandlerCall<O> = Result<BoxFuture<Result<ManualOutput<O>, Error>>, String>;

/// An async function that can handle calls.
///
/// As in axum, the last parameter holds the arguments, and the parameters before it are
/// [extractors](crate::extract): `async fn(Context, State<Db>, Arguments) -> Result<Output>`. A
/// function whose last parameter is an extractor, or that has no parameter, takes no arguments. At
/// most eight parameters are supported.
///
/// - `Arguments` implements [`serde::Deserialize`] and [`JsonSchema`].
/// - The return type implements [`IntoToolResult`](crate::IntoToolResult),
///   [`IntoPromptResult`](crate::IntoPromptResult) or
///   [`IntoResourceResult`](crate::IntoResourceResult).
/// - The future is [`Send`]. It runs again from its first line on every round.
///
/// For methods with `&self`, put `Self` into the server's state:
///
/// ```
/// use mrtr_server::{Context, Result, Server, State, Tool};
///
/// #[derive(Clone)]
/// struct Clinic {
///     name: &'static str,
/// }
///
/// impl Clinic {
///     async fn greet(&self, _cx: Context) -> Result<String> {
///         Ok(format!("Welcome to {}", self.name))
///     }
/// }
///
/// let greet = async |State(clinic): State<Clinic>, cx: Context| clinic.greet(cx).await;
/// let server = Server::builder("clinic", "1.0.0")
///     .tool(Tool::new("greet", "Greets the patient", greet))
///     .state(Clinic { name: "the clinic" })
///     .allow_anonymous()
///     .ephemeral_key()
///     .build()?;
/// # Ok::<(), mrtr_server::BuildError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a handler",
    note = "a handler is `async fn(extractors…, Arguments) -> Output`: the last parameter holds the arguments, and those before it are extractors such as `Context` and `State<T>`",
    note = "`Arguments` must implement `serde::Deserialize` and `schemars::JsonSchema`; the return type must implement `IntoToolResult` (or `IntoPromptResult`, or `IntoResourceResult`)",
    note = "`InputRequired` and `ManualContext` are for handlers given to `Tool::manual`",
    note = "the function's future must be `Send`: hold no `Rc` or lock guard across an await"
)]
pub trait Handler<C, Parameters, Output>: Send + Sync + 'static {
    #[doc(hidden)]
    fn erase(self) -> HandlerParts<Output>;
}

/// A handler without its type, and the schemas and requirements that its type has.
pub struct HandlerParts<O> {
    /// The schema of the arguments.
    pub(crate) arguments: Object,
    /// The schema of the output, if its type has one.
    pub(crate) output: Option<Object>,
    pub(crate) requirements: StateRequirements,
    pub(crate) call: ErasedHandler<O>,
}

/// Tells implementations of [`LastParameter`] apart: a parameter that holds the arguments.
#[derive(Debug)]
pub struct ViaArguments(());

/// Tells implementations of [`LastParameter`] apart: one more extractor.
#[derive(Debug)]
pub struct ViaExtractor<Via>(std::marker::PhantomData<Via>);

/// The last parameter of a handler: its arguments, or one more extractor.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` can be neither the arguments of a handler nor an extractor",
    note = "arguments implement `serde::Deserialize` and `schemars::JsonSchema`"
)]
pub trait LastParameter<C, Via>: Sized {
    /// The value before extraction.
    type Parsed: Send + 'static;

    fn schema() -> Object;
    fn parse(arguments: &str) -> Result<Self::Parsed, String>;
    fn finish(
        parsed: Self::Parsed,
        context: &C,
    ) -> impl Future<Output = Result<Self, Error>> + Send;
    fn state_requirements(_requirements: &mut StateRequirements) {}
}

impl<C: HandlerContext, A> LastParameter<C, ViaArguments> for A
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
{
    type Parsed = A;

    fn schema() -> Object {
        schema_of::<A>()
    }

    fn parse(arguments: &str) -> Result<A, String> {
        read(arguments)
    }

    async fn finish(parsed: A, _: &C) -> Result<A, Error> {
        Ok(parsed)
    }
}

impl<C: HandlerContext, V, E: Extract<C, V>> LastParameter<C, ViaExtractor<V>> for E {
    type Parsed = ();

    fn schema() -> Object {
        no_arguments()
    }

    fn parse(arguments: &str) -> Result<(), String> {
        read::<NoArguments>(arguments).map(|NoArguments {}| ())
    }

    fn finish((): (), context: &C) -> impl Future<Output = Result<Self, Error>> + Send {
        E::extract(context)
    }

    fn state_requirements(requirements: &mut StateRequirements) {
        E::state_requirements(requirements);
    }
}

/// Reads arguments. Line and column are dropped from errors: the client's JSON was re-serialized.
fn read<A: DeserializeOwned>(arguments: &str) -> Result<A, String> {
    let read = json::from_str(arguments);
    let read = read.or_else(|error| with_integers(arguments).ok_or(error));
    read.map_err(|error| match error.path() {
        "" => error.reason(),
        path => format!("{path}: {}", error.reason()),
    })
}

/// Reads arguments after rewriting whole numbers such as `2.0`, which JSON Schema counts as
/// integers. Returns `None` if there are none, or the arguments are invalid.
fn with_integers<A: DeserializeOwned>(arguments: &str) -> Option<A> {
    /// Returns the number of changes.
    fn rewrite(value: &mut Value) -> usize {
        match value {
            Value::Array(all) => all.iter_mut().map(rewrite).sum(),
            Value::Object(all) => all.values_mut().map(rewrite).sum(),
            Value::Number(number) => {
                let whole = json::whole_float(number);
                whole.map_or(0, |whole| {
                    *number = whole.into();
                    1
                })
            }
            _ => 0,
        }
    }
    let mut value = serde_json::from_str(arguments).ok()?;
    if rewrite(&mut value) == 0 {
        return None;
    }
    json::from_value(&value).ok()
}

/// The arguments of a handler that takes none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

/// The schema of a handler that takes no arguments.
pub(crate) fn no_arguments() -> Object {
    Object::from_iter([
        ("type".to_owned(), serde_json::json!("object")),
        ("additionalProperties".to_owned(), serde_json::json!(false)),
    ])
}

impl<F, C, Fut, R, O> Handler<C, (R,), O> for F
where
    F: Fn() -> Fut + Send + Sync + 'static,
    C: HandlerContext,
    Fut: Future<Output = R> + Send + 'static,
    R: IntoOutput<C, O>,
{
    fn erase(self) -> HandlerParts<O> {
        let handler = Arc::new(self);
        let call: ErasedHandler<O> = Box::new(move |_, arguments| {
            let NoArguments {} = read(arguments)?;
            let handler = Arc::clone(&handler);
            Ok(Box::pin(async move { handler().await.into_output() }))
        });
        let requirements = StateRequirements::default();
        HandlerParts { arguments: no_arguments(), output: R::schema(), requirements, call }
    }
}

macro_rules! handlers {
    ($([$($value:ident $extractor:ident $via:ident),*])*) => {$(
        impl<F, C, Fut, R, O, L, M, $($extractor, $via,)*>
            Handler<C, ($(($extractor, $via),)* (L, M), R), O> for F
        where
            F: Fn($($extractor,)* L) -> Fut + Send + Sync + 'static,
            C: HandlerContext,
            $($extractor: Extract<C, $via> + Send,)*
            L: LastParameter<C, M> + Send,
            Fut: Future<Output = R> + Send + 'static,
            R: IntoOutput<C, O>,
        {
            fn erase(self) -> HandlerParts<O> {
                let handler = Arc::new(self);
                let call: ErasedHandler<O> = Box::new(move |invocation, arguments| {
                    let parsed = L::parse(arguments)?;
                    let handler = Arc::clone(&handler);
                    let context = C::from_invocation(invocation);
                    Ok(Box::pin(async move {
                        $(let $value = $extractor::extract(&context).await?;)*
                        let last = L::finish(parsed, &context).await?;
                        drop(context);
                        handler($($value,)* last).await.into_output()
                    }))
                });
                let mut requirements = StateRequirements::default();
                $($extractor::state_requirements(&mut requirements);)*
                L::state_requirements(&mut requirements);
                HandlerParts { arguments: L::schema(), output: R::schema(), requirements, call }
            }
        }
    )*};
}

handlers! {
    []
    [e1 E1 V1]
    [e1 E1 V1, e2 E2 V2]
    [e1 E1 V1, e2 E2 V2, e3 E3 V3]
    [e1 E1 V1, e2 E2 V2, e3 E3 V3, e4 E4 V4]
    [e1 E1 V1, e2 E2 V2, e3 E3 V3, e4 E4 V4, e5 E5 V5]
    [e1 E1 V1, e2 E2 V2, e3 E3 V3, e4 E4 V4, e5 E5 V5, e6 E6 V6]
    [e1 E1 V1, e2 E2 V2, e3 E3 V3, e4 E4 V4, e5 E5 V5, e6 E6 V6, e7 E7 V7]
}
