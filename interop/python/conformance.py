"""A server on the Python SDK with the tools, prompts and resources that the official conformance
suite calls, on the loopback port in `PORT`. `cargo xtask conformance gateway-python` runs the suite
against it twice: directly, and through a gateway.
"""

import asyncio
import base64
import json
import os

import uvicorn
from mcp.server.mcpserver import Audio, Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp_types import (
    Completion,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)

server = MCPServer("python", version="1.0.0", log_level="WARNING")

# A PNG with one red pixel, and the header of a WAV without samples.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
WAV = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=")

tool = server.tool(structured_output=False)


def text(uri: str, mime_type: str, content: str) -> EmbeddedResource:
    resource = TextResourceContents(uri=uri, mime_type=mime_type, text=content)
    return EmbeddedResource(resource=resource)


@tool
def test_simple_text() -> str:
    """Returns text"""
    return "This is a simple text response for testing."


@tool
def test_error_handling() -> str:
    """Always fails"""
    raise ToolError("This tool intentionally returns an error for testing")


@tool
def test_image_content() -> Image:
    """Returns an image"""
    return Image(data=PNG, format="png")


@tool
def test_audio_content() -> Audio:
    """Returns audio"""
    return Audio(data=WAV, format="wav")


@tool
def test_embedded_resource() -> EmbeddedResource:
    """Returns a resource"""
    return text("test://embedded-resource", "text/plain", "This is an embedded resource content.")


@tool
def test_multiple_content_types() -> list:
    """Returns several kinds of content"""
    data = json.dumps({"test": "data", "value": 123})
    resource = text("test://mixed-content-resource", "application/json", data)
    return ["Multiple content types test:", Image(data=PNG, format="png"), resource]


@tool
async def test_tool_with_progress(context: Context) -> str:
    """Reports progress"""
    for percent in (0, 50, 100):
        await context.report_progress(percent, 100)
        await asyncio.sleep(0.05)
    return "done"


@tool
async def test_tool_with_logging(context: Context) -> str:
    """Sends log messages"""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.info(message)
        await asyncio.sleep(0.05)
    return "done"


# Functions that build input requests and read their answers.


def form(message: str, field: str, kind: str) -> ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(question: str) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=TextContent(text=question))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=100))


def ask(state: str | None = None, **requests) -> InputRequiredResult:
    return InputRequiredResult(input_requests=requests, request_state=state)


def answers(context: Context, *names: str) -> list | None:
    """Returns the answers with these names, or none if one is missing."""
    given = context.input_responses or {}
    return [given[name] for name in names] if given.keys() >= set(names) else None


@tool
def test_input_required_result_elicitation(context: Context) -> str | InputRequiredResult:
    """Asks for a name"""
    answer = answers(context, "user_name")
    if answer is None:
        return ask(user_name=form("What is your name?", "name", "string"))
    return f"Hello, {answer[0].content['name']}!"


@tool
def test_input_required_result_sampling(context: Context) -> str | InputRequiredResult:
    """Asks a model"""
    answer = answers(context, "capital_question")
    if answer is None:
        return ask(capital_question=sample("What is the capital of France?"))
    return answer[0].content.text


@tool
def test_input_required_result_list_roots(context: Context) -> str | InputRequiredResult:
    """Asks for roots"""
    answer = answers(context, "client_roots")
    if answer is None:
        return ask(client_roots=ListRootsRequest())
    return ", ".join(str(root.uri) for root in answer[0].roots)


@tool
def test_input_required_result_request_state(context: Context) -> str | InputRequiredResult:
    """Asks for confirmation"""
    answer = answers(context, "confirm")
    if answer is None:
        return ask("confirming", confirm=form("Please confirm", "ok", "boolean"))
    return "state-ok" if context.request_state == "confirming" else "not confirmed"


@tool
def test_input_required_result_tampered_state(context: Context) -> str | InputRequiredResult:
    """Asks for confirmation"""
    return test_input_required_result_request_state(context)


@tool
def test_input_required_result_multiple_inputs(context: Context) -> str | InputRequiredResult:
    """Asks everything at once"""
    given = answers(context, "user_name", "greeting", "client_roots")
    if given is None:
        return ask(
            "asking",
            user_name=form("What is your name?", "name", "string"),
            greeting=sample("Generate a greeting"),
            client_roots=ListRootsRequest(),
        )
    name, greeting, roots = given
    return f"{greeting.content.text} {name.content['name']} ({len(roots.roots)} roots)"


@tool
def test_input_required_result_multi_round(context: Context) -> str | InputRequiredResult:
    """Asks in two rounds"""
    name, color = answers(context, "step1"), answers(context, "step2")
    if color is not None and context.request_state:
        return f"{context.request_state} likes {color[0].content['color']}"
    if name is not None:
        question = form("Step 2: What is your favorite color?", "color", "string")
        return ask(name[0].content["name"], step2=question)
    return ask("no name yet", step1=form("Step 1: What is your name?", "name", "string"))


@server.resource("test://static-text", name="static-text", mime_type="text/plain")
def static_text() -> str:
    return "This is the content of the static text resource."


@server.resource("test://static-binary", name="static-binary", mime_type="image/png")
def static_binary() -> bytes:
    return PNG


@server.resource("test://template/{id}/data", name="template", mime_type="application/json")
def template(id: str) -> str:
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@server.prompt()
def test_simple_prompt() -> str:
    """A simple prompt"""
    return "This is a simple prompt for testing."


@server.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Returns its arguments"""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt()
def test_prompt_with_embedded_resource(resourceUri: str) -> list:
    """Embeds a resource"""
    resource = text(resourceUri, "text/plain", "Embedded resource content for testing.")
    return [UserMessage(resource), UserMessage("Please process the embedded resource above.")]


@server.prompt()
def test_prompt_with_image() -> list:
    """Includes an image"""
    image = ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png")
    return [UserMessage(image), UserMessage("Please analyze the image above.")]


@server.completion()
async def complete(_reference, argument, _context) -> Completion:
    cities = [city for city in ("paris", "park", "party") if city.startswith(argument.value)]
    return Completion(values=cities)


config = uvicorn.Config(
    server.streamable_http_app(),
    host="127.0.0.1",
    port=int(os.environ["PORT"]),
    log_level="warning",
)
uvicorn.Server(config).run()
