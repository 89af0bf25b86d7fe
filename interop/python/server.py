"""A server on the Python SDK, with one tool, prompt or template for each row of the table that
`cargo xtask interop` prints. `interop/README.md` describes their behaviour.

The server prints `listening PORT` and serves until it is killed. With `--stdio`, it serves its
parent process over stdin and stdout.
"""

import asyncio
import json
import socket
import sys
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import (
    AcceptedElicitation,
    Context,
    Elicit,
    ElicitationResult,
    ListRoots,
    MCPServer,
    Resolve,
    Sample,
)
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

server = MCPServer("python", version="1.0.0", log_level="WARNING")


class Name(BaseModel):
    name: str


class Sure(BaseModel):
    sure: bool


class First(BaseModel):
    first: str


class Last(BaseModel):
    last: str


def ask_name() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


def ask_sure(name: Annotated[Name, Resolve(ask_name)]) -> Elicit[Sure]:
    return Elicit(f"Are you sure, {name.name}?", Sure)


def ask_first() -> Elicit[First]:
    return Elicit("First name?", First)


def ask_last() -> Elicit[Last]:
    return Elicit("Last name?", Last)


def ask_model() -> Sample:
    question = TextContent(text="Capital of France?")
    return Sample([SamplingMessage(role="user", content=question)], max_tokens=10)


def ask_roots() -> ListRoots:
    return ListRoots()


@server.tool()
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return str(a + b)


@server.tool()
def fail() -> str:
    """Fails."""
    raise ToolError("out of order")


@server.tool()
async def count(context: Context) -> str:
    """Counts to three."""
    for n in range(1, 4):
        await context.report_progress(n, 3)
    return "counted"


# Set when a call of `wait` was cancelled.
was_cancelled = asyncio.Event()


@server.tool()
async def wait(context: Context) -> None:
    """Waits until its call is cancelled."""
    await context.report_progress(1)
    try:
        await asyncio.Event().wait()
    finally:
        was_cancelled.set()


@server.tool()
async def cancelled() -> str:
    """Waits until a call of `wait` was cancelled."""
    await was_cancelled.wait()
    return "cancelled"


@server.tool()
def form(name: Annotated[ElicitationResult[Name], Resolve(ask_name)]) -> str:
    """Asks for a name."""
    return f"Hello, {name.data.name}!" if isinstance(name, AcceptedElicitation) else "declined"


# Only forms, sampling and roots have resolvers, and only in tools. The others return a result with
# questions.
@server.tool()
def url(context: Context) -> str | InputRequiredResult:
    """Sends the user to a page."""
    answer = (context.input_responses or {}).get("login")
    if answer is None:
        params = ElicitRequestURLParams(message="Please log in", url="https://example.com/login")
        return InputRequiredResult(input_requests={"login": ElicitRequest(params=params)})
    if answer.action != "accept":
        raise ToolError("declined")
    return "logged in"


@server.tool()
def model(reply: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
    """Asks a model."""
    return reply.content.text


@server.tool()
def roots(listed: Annotated[ListRootsResult, Resolve(ask_roots)]) -> str:
    """Asks for roots."""
    return ",".join(str(root.uri) for root in listed.roots)


@server.tool()
def rounds(name: Annotated[Name, Resolve(ask_name)], sure: Annotated[Sure, Resolve(ask_sure)]) -> str:
    """Asks twice."""
    return f"Hello, {name.name}! {json.dumps(sure.sure)}"


@server.tool()
def joined(first: Annotated[First, Resolve(ask_first)], last: Annotated[Last, Resolve(ask_last)]) -> str:
    """Asks two questions at once."""
    return f"{first.first} {last.last}"


@server.tool()
def poll(context: Context) -> str | InputRequiredResult:
    """Returns a state without questions."""
    return InputRequiredResult(request_state="again") if context.request_state is None else "done"


def name_or_question(context: Context, message: str) -> str | InputRequiredResult:
    answer = (context.input_responses or {}).get("name")
    if answer is None:
        params = ElicitRequestFormParams(message=message, requested_schema=Name.model_json_schema())
        return InputRequiredResult(input_requests={"name": ElicitRequest(params=params)})
    return Name.model_validate(answer.content).name


@server.prompt()
def brief(context: Context) -> str | InputRequiredResult:
    """Asks for whom."""
    name = name_or_question(context, "For whom?")
    return f"A brief for {name}" if isinstance(name, str) else name


@server.resource("note://{id}")
def note(id: str, context: Context) -> str | InputRequiredResult:
    """A note."""
    name = name_or_question(context, "Whose?")
    return f"note {id} of {name}" if isinstance(name, str) else name


if "--stdio" in sys.argv:
    server.run()
    sys.exit()

listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print("listening", listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning")).run(sockets=[listener])
