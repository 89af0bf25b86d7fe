//! The attribute macros. Their examples are here because in the macro crate they would need
//! development dependencies, which would be compiled a second time, for the host.

/// # Example
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

/// # Example
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

/// # Example
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

/// # Example
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
