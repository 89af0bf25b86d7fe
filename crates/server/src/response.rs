//! The return types of handlers, and their conversion to results.

use std::error::Error as StdError;

use mrtr_schema::Object;
use mrtr_schema::content::ContentBlock;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::Error;
use crate::form::output_schema_of;
use crate::manual::{InputRequired, ManualContext, ManualOutput};
use crate::output::{PromptOutput, ResourceOutput, ToolOutput};

/// Converts an error that a handler returns.
///
/// Implemented for [`Error`], boxed errors, and a few errors of the standard library and
/// `serde_json`. The texts of all but [`Error`] are only logged. Implement it for your own error
/// type, and choose which of its texts the model may read:
///
/// ```
/// use mrtr_server::{Context, Error, IntoError};
///
/// #[derive(Debug, thiserror::Error)]
/// enum BookingError {
///     #[error("no table for {0}")]
///     Full(u8),
///     #[error(transparent)]
///     Database(#[from] std::io::Error),
/// }
///
/// impl IntoError for BookingError {
///     fn into_error(self) -> Error {
///         match self {
///             Self::Full(_) => Error::show(self),
///             Self::Database(_) => Error::internal(self),
///         }
///     }
/// }
///
/// async fn book(_: Context) -> Result<String, BookingError> {
///     Err(BookingError::Full(4))
/// }
/// # let _ = mrtr_server::Tool::new("book", "Books a table", book);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a handler",
    note = "return `mrtr::Error`, or implement `mrtr::IntoError` for `{Self}`"
)]
pub trait IntoError {
    /// Converts the error.
    fn into_error(self) -> Error;
}

impl IntoError for Error {
    fn into_error(self) -> Error {
        self
    }
}

impl IntoError for Box<dyn StdError + Send + Sync> {
    fn into_error(self) -> Error {
        Error::internal(self)
    }
}

macro_rules! hidden_errors {
    ($($error:ty),* $(,)?) => {$(
        impl IntoError for $error {
            fn into_error(self) -> Error {
                Error::internal(self)
            }
        }
    )*};
}
hidden_errors!(std::io::Error, std::fmt::Error, std::convert::Infallible, serde_json::Error);

/// Converts a handler's return value to the result of a tool.
///
/// Implemented for [`ToolOutput`], text, [`ContentBlock`]s, `()` (no content), and
/// [`Json`](crate::Json), and for a [`Result`] of any of these whose error implements
/// [`IntoError`]. Implement it for types of your own that tools return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a tool",
    note = "return `String`, `Json<T>`, `ToolOutput`, or a `Result` of these whose error implements `IntoError`",
    note = "`InputRequired` can be returned from handlers given to `Tool::manual`"
)]
pub trait IntoToolResult: Sized {
    /// Converts the value.
    ///
    /// # Errors
    ///
    /// An error becomes a result with `isError`, whose text is [`Error::message`].
    fn into_tool_result(self) -> Result<ToolOutput, Error>;

    /// Returns the JSON Schema of the structured content. Default: `None`, for results without
    /// structured content.
    fn output_schema() -> Option<Object> {
        None
    }
}

/// Converts a handler's return value to the result of a prompt.
///
/// Implemented for [`PromptOutput`] and text, and for a [`Result`] of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a prompt",
    note = "return `String`, `PromptOutput`, or a `Result` of these whose error implements `IntoError`"
)]
pub trait IntoPromptResult: Sized {
    /// Converts the value.
    ///
    /// # Errors
    ///
    /// An error becomes a JSON-RPC error.
    fn into_prompt_result(self) -> Result<PromptOutput, Error>;
}

/// Converts a handler's return value to the contents of a resource.
///
/// Implemented for [`ResourceOutput`] and text, and for a [`Result`] of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the contents of a resource",
    note = "return `String`, `ResourceOutput`, or a `Result` of these whose error implements `IntoError`"
)]
pub trait IntoResourceResult: Sized {
    /// Converts the value.
    ///
    /// # Errors
    ///
    /// An error becomes a JSON-RPC error.
    fn into_resource_result(self) -> Result<ResourceOutput, Error>;
}

macro_rules! results {
    ($($into:ident $method:ident $output:ident: $($kind:ty),*;)*) => {$(
        $(impl $into for $kind {
            fn $method(self) -> Result<$output, Error> {
                Ok(self.into())
            }
        })*

        impl<R: $into, C> IntoOutput<C, $output> for R {
            fn schema() -> Option<Object> {
                schema_for!($into R)
            }

            fn into_output(self) -> Result<ManualOutput<$output>, Error> {
                self.$method().map(ManualOutput::Complete)
            }
        }
    )*};
}

macro_rules! schema_for {
    (IntoToolResult $result:ident) => {
        $result::output_schema()
    };
    ($other:ident $result:ident) => {
        None
    };
}

results! {
    IntoToolResult into_tool_result ToolOutput: ToolOutput, String, &'static str, ContentBlock, Vec<ContentBlock>, ();
    IntoPromptResult into_prompt_result PromptOutput: PromptOutput, String, &'static str;
    IntoResourceResult into_resource_result ResourceOutput: ResourceOutput, String, &'static str;
}

impl<R: IntoToolResult, E: IntoError> IntoToolResult for Result<R, E> {
    fn into_tool_result(self) -> Result<ToolOutput, Error> {
        self.map_err(E::into_error)?.into_tool_result()
    }

    fn output_schema() -> Option<Object> {
        R::output_schema()
    }
}

impl<R: IntoPromptResult, E: IntoError> IntoPromptResult for Result<R, E> {
    fn into_prompt_result(self) -> Result<PromptOutput, Error> {
        self.map_err(E::into_error)?.into_prompt_result()
    }
}

impl<R: IntoResourceResult, E: IntoError> IntoResourceResult for Result<R, E> {
    fn into_resource_result(self) -> Result<ResourceOutput, Error> {
        self.map_err(E::into_error)?.into_resource_result()
    }
}

/// The result of a tool as structured content (`structuredContent`). The schema of `T` becomes the
/// tool's `outputSchema` (specification: tools, "Structured Content" and "Output Schema").
///
/// The model gets the same JSON as text. The result of a failed handler has no structured content.
///
/// ```
/// use mrtr_server::{Context, Json, Result, Tool};
///
/// #[derive(serde::Serialize, schemars::JsonSchema)]
/// struct Weather {
///     /// In degrees Celsius.
///     temperature: f64,
/// }
///
/// async fn weather(_: Context) -> Result<Json<Weather>> {
///     Ok(Json(Weather { temperature: 21.5 }))
/// }
///
/// let tool = Tool::new("weather", "The weather here", weather);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: Serialize + JsonSchema> IntoToolResult for Json<T> {
    fn output_schema() -> Option<Object> {
        Some(output_schema_of::<T>())
    }

    fn into_tool_result(self) -> Result<ToolOutput, Error> {
        let value = serde_json::to_value(self.0)?;
        let text = ContentBlock::text(value.to_string());
        Ok(ToolOutput::structured(value, [text]))
    }
}

/// Converts a return value where a handler with context `C` produces an `O`. Implement
/// [`IntoToolResult`], [`IntoPromptResult`] or [`IntoResourceResult`].
#[doc(hidden)]
pub trait IntoOutput<C, O>: Sized {
    fn schema() -> Option<Object>;
    fn into_output(self) -> Result<ManualOutput<O>, Error>;
}

macro_rules! manual_outputs {
    ($($output:ident),*) => {$(
        impl IntoOutput<ManualContext, $output> for ManualOutput<$output> {
            fn schema() -> Option<Object> {
                None
            }

            fn into_output(self) -> Result<ManualOutput<$output>, Error> {
                Ok(self)
            }
        }

        impl<E: IntoError> IntoOutput<ManualContext, $output> for Result<ManualOutput<$output>, E> {
            fn schema() -> Option<Object> {
                None
            }

            fn into_output(self) -> Result<ManualOutput<$output>, Error> {
                self.map_err(E::into_error)
            }
        }

        impl IntoOutput<ManualContext, $output> for InputRequired {
            fn schema() -> Option<Object> {
                None
            }

            fn into_output(self) -> Result<ManualOutput<$output>, Error> {
                Ok(self.into())
            }
        }

        impl<E: IntoError> IntoOutput<ManualContext, $output> for Result<InputRequired, E> {
            fn schema() -> Option<Object> {
                None
            }

            fn into_output(self) -> Result<ManualOutput<$output>, Error> {
                self.map(Into::into).map_err(E::into_error)
            }
        }
    )*};
}
manual_outputs!(ToolOutput, PromptOutput, ResourceOutput);
