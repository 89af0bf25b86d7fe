"""A server on the 1.x Python SDK, with one tool, prompt or template for each row of the table that
`cargo xtask interop` prints. `interop/README.md` describes their behaviour.

The server prints `listening PORT` and serves until it is killed. With `--stdio`, it serves its
parent process over stdin and stdout.
"""

import asyncio
import json
import socket
import sys
from typing import TypeVar

import uvicorn
from mcp.server.elicitation import AcceptedElicitation, AcceptedUrlElicitation
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

# At level WARNING, the SDK logs 90 lines about `server/discover`, which it does not know.
server = FastMCP("python-1", log_level="ERROR")


Form = TypeVar("Form", bound=BaseModel)


class Name(BaseModel):
    name: str


class Sure(BaseModel):
    sure: bool


class First(BaseModel):
    first: str


class Last(BaseModel):
    last: str


async def ask(context: Context, message: str, form: type[Form]) -> Form:
    answer = await context.elicit(message, form)
    if not isinstance(answer, AcceptedElicitation):
        raise ToolError("declined")
    return answer.data


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
async def form(context: Context) -> str:
    """Asks for a name."""
    answer = await context.elicit("What is your name?", Name)
    return f"Hello, {answer.data.name}!" if isinstance(answer, AcceptedElicitation) else "declined"


@server.tool()
async def url(context: Context) -> str:
    """Sends the user to a page."""
    answer = await context.elicit_url("Please log in", "https://example.com/login", "login")
    if not isinstance(answer, AcceptedUrlElicitation):
        raise ToolError("declined")
    return "logged in"


@server.tool()
async def model(context: Context) -> str:
    """Asks a model."""
    question = SamplingMessage(role="user", content=TextContent(type="text", text="Capital of France?"))
    reply = await context.session.create_message(
        [question], max_tokens=10, related_request_id=context.request_id
    )
    return reply.content.text


@server.tool()
async def roots(context: Context) -> str:
    """Asks for roots."""
    # The SDK cannot relate this request to a call: over HTTP, it sends it in response to the GET.
    listed = await context.session.list_roots()
    return ",".join(str(root.uri) for root in listed.roots)


@server.tool()
async def rounds(context: Context) -> str:
    """Asks twice."""
    name = (await ask(context, "What is your name?", Name)).name
    sure = (await ask(context, f"Are you sure, {name}?", Sure)).sure
    return f"Hello, {name}! {json.dumps(sure)}"


@server.tool()
async def joined(context: Context) -> str:
    """Asks two questions at once."""
    first, last = await asyncio.gather(
        ask(context, "First name?", First), ask(context, "Last name?", Last)
    )
    return f"{first.first} {last.last}"


@server.tool()
def poll() -> str:
    """Returns a text. This revision has no state."""
    return "done"


@server.prompt()
async def brief(context: Context) -> str:
    """Asks for whom."""
    return f"A brief for {(await ask(context, 'For whom?', Name)).name}"


@server.resource("note://{id}")
async def note(id: str, context: Context) -> str:
    """A note."""
    return f"note {id} of {(await ask(context, 'Whose?', Name)).name}"


if "--stdio" in sys.argv:
    server.run()
    sys.exit()

listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print("listening", listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning")).run(sockets=[listener])
