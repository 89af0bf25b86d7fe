//! The attribute macros: constructors equal to hand-written ones.

use mrtr::manual::{InputRequired, ManualContext, ManualOutput};
use mrtr::{Client, Context, ElicitResult, InProcess, Result, Server, State, ToolOutput};
use mrtr::{prompt, resource, resource_template, tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
struct Guest {
    name: String,
}

#[derive(Clone)]
struct Hotel {
    city: &'static str,
}

impl Hotel {
    /// Welcomes a guest.
    ///
    /// By name.
    #[tool(title = "Welcome", read_only, open_world = false)]
    async fn welcome(&self, cx: Context, guest: Guest) -> Result<String> {
        let city = self.city;
        let mood: Guest = cx.elicit("mood", "How are you?").await?;
        Ok(format!("Welcome to {city}, {}: {}", guest.name, mood.name))
    }
}

/// Cancels.
#[tool(name = "cancel-booking", manual)]
async fn cancel(cx: ManualContext) -> ManualOutput<ToolOutput> {
    match cx.answers().form::<Guest>("who") {
        Some(guest) => format!("cancelled for {}", guest.name).into(),
        None => InputRequired::new().elicit::<Guest>("who", "Who?").into(),
    }
}

/// Briefs a guest.
#[prompt]
async fn brief(guest: Guest) -> String {
    format!("Brief {}", guest.name)
}

/// The house rules.
#[resource("doc://rules", mime_type = "text/plain")]
async fn rules(State(hotel): State<Hotel>) -> String {
    format!("Rules of {}", hotel.city)
}

#[resource_template("doc://guests/{name}")]
async fn guest(guest: Guest) -> String {
    guest.name
}

#[tokio::test]
async fn handlers_with_attributes_are_served() {
    let server = Server::builder("hotel", "1.0.0")
        .tool(Hotel::welcome_tool())
        .tool(cancel_tool())
        .prompt(brief_prompt())
        .resource(rules_resource())
        .resource_template(guest_resource_template())
        .state(Hotel { city: "Lisbon" })
        .allow_anonymous()
        .ephemeral_key()
        .build()
        .unwrap();
    let client = Client::builder(InProcess::new(server))
        .on_form(async |_, _| Ok(ElicitResult::accept(json!({ "name": "well" }))?))
        .build();

    let tools = client.list_tools().await.unwrap();
    assert_eq!(tools[0].name, "welcome");
    assert_eq!(tools[0].title.as_deref(), Some("Welcome"));
    assert_eq!(tools[0].description.as_deref(), Some("Welcomes a guest.\n\nBy name."));
    let annotations = tools[0].annotations.as_ref().unwrap();
    assert_eq!(
        (annotations.read_only_hint, annotations.open_world_hint),
        (Some(true), Some(false))
    );
    assert_eq!(tools[1].name, "cancel-booking");

    let welcome = client.call_tool("welcome", json!({ "name": "Ada" })).await.unwrap();
    assert_eq!(welcome.text(), "Welcome to Lisbon, Ada: well");
    let cancelled = client.call_tool("cancel-booking", json!({})).await.unwrap();
    assert_eq!(cancelled.text(), "cancelled for well");

    let prompt = client.get_prompt("brief", json!({ "name": "Ada" })).await.unwrap();
    assert_eq!(prompt.messages[0].content.as_text(), Some("Brief Ada"));
    let rules = client.read_resource("doc://rules").await.unwrap();
    assert_eq!(rules.contents[0].text.as_deref(), Some("Rules of Lisbon"));
    assert_eq!(rules.contents[0].mime_type.as_deref(), Some("text/plain"));
    let guest = client.read_resource("doc://guests/Ada").await.unwrap();
    assert_eq!(guest.contents[0].text.as_deref(), Some("Ada"));
}
