//! The attribute macros, with their examples: as development dependencies of the macro crate, the
//! crates that they need would be compiled a second time, for the host.

/// Makes a prompt of an async function.
///
/// ```
/// use mrtr::{Result, Server, prompt};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Dish {
///     name: String,
/// }
///
/// /// Writes a review of a dish.
/// #[prompt]
/// async fn review(dish: Dish) -> Result<String> {
///     Ok(format!("Write a review of {}.", dish.name))
/// }
///
/// let server = Server::builder("booking", "1.0.0").prompt(review_prompt());
/// ```
///
pub use mrtr_macros::prompt;

/// Makes a resource of an async function.
///
/// ```
/// use mrtr::{Result, Server, resource};
///
/// /// The opening hours.
/// #[resource("doc://hours", mime_type = "text/plain")]
/// async fn hours() -> Result<String> {
///     Ok("Daily, from 12:00 to 23:00.".to_owned())
/// }
///
/// let server = Server::builder("booking", "1.0.0").resource(hours_resource());
/// ```
///
pub use mrtr_macros::resource;

/// Makes a resource template of an async function.
///
/// ```
/// use mrtr::{Result, Server, resource_template};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Day {
///     day: String,
/// }
///
/// /// The menu of a day.
/// #[resource_template("menu://{day}")]
/// async fn menu(on: Day) -> Result<String> {
///     Ok(format!("The menu of {}", on.day))
/// }
///
/// let server = Server::builder("booking", "1.0.0").resource_template(menu_resource_template());
/// ```
///
pub use mrtr_macros::resource_template;

/// Makes a tool of an async function.
///
/// ```
/// use mrtr::{Context, Result, Server, tool};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct BookingId {
///     id: String,
/// }
///
/// /// Cancels a booking.
/// #[tool(title = "Cancel", destructive, idempotent)]
/// async fn cancel(cx: Context, booking: BookingId) -> Result<String> {
///     Ok(format!("{} is cancelled.", booking.id))
/// }
///
/// let server = Server::builder("booking", "1.0.0").tool(cancel_tool());
/// ```
///
pub use mrtr_macros::tool;
