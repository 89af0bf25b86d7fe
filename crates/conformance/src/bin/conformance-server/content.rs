//! Tools and prompts that return every kind of content.

use std::time::Duration;

use mrtr::schema::content::{ContentBlock, EmbeddedResource, MediaContent, ResourceContents, Role};
use mrtr::{
    Context, Prompt, PromptOutput, Resource, ResourceOutput, ResourceTemplate, Tool, ToolOutput,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The bytes of a PNG with one red pixel.
const PIXEL: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, 0x49, 0x48, 0x44, 0x52, 0, 0, 0,
    1, 0, 0, 0, 1, 8, 2, 0, 0, 0, 0x90, 0x77, 0x53, 0xde,
];

/// The same image in Base64.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
/// A WAV header without samples, in Base64.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

pub(crate) fn tools() -> Vec<Tool> {
    vec![
        Tool::new(
            "test_image_content",
            "Returns an image",
            async |_: Context| -> mrtr::Result<_> { Ok(ToolOutput::content([image()])) },
        ),
        Tool::new("test_audio_content", "Returns audio", async |_: Context| -> mrtr::Result<_> {
            Ok(ToolOutput::content([ContentBlock::Audio(media(WAV, "audio/wav"))]))
        }),
        Tool::new(
            "test_embedded_resource",
            "Returns a resource",
            async |_: Context| -> mrtr::Result<_> {
                let text = "This is an embedded resource content.";
                Ok(ToolOutput::content([resource("test://embedded-resource", "text/plain", text)]))
            },
        ),
        Tool::new(
            "test_x_mcp_header",
            "Mirrors an argument in a header",
            async |_: Context, region: Region| region.region.unwrap_or_default(),
        ),
        Tool::new(
            "test_tool_with_progress",
            "Reports progress",
            async |cx: Context| -> mrtr::Result<_> {
                for percent in [0.0, 50.0, 100.0] {
                    cx.progress(percent, Some(100.0), None);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Ok("done")
            },
        ),
        Tool::new(
            "test_multiple_content_types",
            "Returns several kinds of content",
            async |_: Context| -> mrtr::Result<_> {
                let json = r#"{"test":"data","value":123}"#;
                Ok(ToolOutput::content([
                    ContentBlock::text("Multiple content types test:"),
                    image(),
                    resource("test://mixed-content-resource", "application/json", json),
                ]))
            },
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct TwoArguments {
    /// First test argument
    arg1: String,
    /// Second test argument
    arg2: String,
}

#[derive(Deserialize, JsonSchema)]
struct ResourceArgument {
    /// URI of the resource to embed
    #[serde(rename = "resourceUri")]
    resource_uri: String,
}

pub(crate) fn resources() -> Vec<Resource> {
    vec![
        Resource::new("test://static-text", "static-text", async |_: Context| -> mrtr::Result<_> {
            Ok("This is the content of the static text resource.")
        })
        .mime_type("text/plain"),
        Resource::new(
            "test://static-binary",
            "static-binary",
            async |_: Context| -> mrtr::Result<_> { Ok(ResourceOutput::bytes(PIXEL)) },
        )
        .mime_type("image/png"),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct Region {
    /// The region
    #[schemars(extend("x-mcp-header" = "Region"))]
    #[serde(default)]
    #[schemars(with = "String")]
    region: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Id {
    id: String,
}

pub(crate) fn template() -> ResourceTemplate {
    let read = async |_: Context, Id { id }: Id| -> mrtr::Result<_> {
        Ok(serde_json::json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") }).to_string())
    };
    ResourceTemplate::new("test://template/{id}/data", "template", read)
        .mime_type("application/json")
}

pub(crate) fn prompts() -> Vec<Prompt> {
    let suggest = async |typed: mrtr::CompletionRequest| {
        let all = ["paris", "park", "party"];
        Ok(all
            .iter()
            .filter(|one| one.starts_with(&typed.value))
            .map(ToString::to_string)
            .collect())
    };
    let embedded = async |_: Context,
                          ResourceArgument { resource_uri }: ResourceArgument|
           -> mrtr::Result<_> {
        let text = "Embedded resource content for testing.";
        Ok(PromptOutput::messages([
            (Role::User, resource(&resource_uri, "text/plain", text)),
            (Role::User, ContentBlock::text("Please process the embedded resource above.")),
        ]))
    };
    vec![
        Prompt::new(
            "test_simple_prompt",
            "A simple prompt",
            async |_: Context| -> mrtr::Result<_> { Ok("This is a simple prompt for testing.") },
        ),
        Prompt::new(
            "test_prompt_with_arguments",
            "Returns its arguments",
            async |_: Context, a: TwoArguments| -> mrtr::Result<_> {
                Ok(format!("Prompt with arguments: arg1='{}', arg2='{}'", a.arg1, a.arg2))
            },
        )
        .complete("arg1", suggest),
        Prompt::new("test_prompt_with_embedded_resource", "Embeds a resource", embedded),
        Prompt::new(
            "test_prompt_with_image",
            "Includes an image",
            async |_: Context| -> mrtr::Result<_> {
                let text = ContentBlock::text("Please analyze the image above.");
                Ok(PromptOutput::messages([(Role::User, image()), (Role::User, text)]))
            },
        ),
    ]
}

fn media(data: &str, mime_type: &str) -> MediaContent {
    MediaContent::new(data, mime_type)
}

fn image() -> ContentBlock {
    ContentBlock::Image(media(PNG, "image/png"))
}

fn resource(uri: &str, mime_type: &str, text: &str) -> ContentBlock {
    let resource = ResourceContents::text(uri, text).with_mime_type(mime_type);
    ContentBlock::Resource(EmbeddedResource::new(resource))
}
