"""The 1.x Python SDK's client on another SDK's server: `client.py URL` over HTTP,
`client.py COMMAND ARGUMENT…` over stdio. `interop/README.md` describes its calls and its output.
"""

import asyncio
import os
import sys
from datetime import timedelta

from mcp import ClientSession, McpError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import (
    INVALID_PARAMS,
    CallToolResult,
    CancelledNotification,
    CancelledNotificationParams,
    ClientNotification,
    CreateMessageResult,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    InitializeResult,
    ListRootsResult,
    Root,
    TextContent,
)

VERSION = "2025-11-25"
TOOLS = "add cancelled count fail form joined model poll roots rounds url wait".split()
ANSWERS = {"name": "Ada", "sure": True, "first": "Ada", "last": "Lovelace"}


class User:
    """A user who answers the server's questions. Records the questions."""

    def __init__(self) -> None:
        self.declines = False
        self.asked: list[str] = []

    async def elicit(self, _context, params) -> ElicitResult | ErrorData:
        if isinstance(params, ElicitRequestURLParams):
            if params.url != "https://example.com/login":
                return ErrorData(code=INVALID_PARAMS, message=f"the URL is {params.url}")
            return ElicitResult(action="accept")
        self.asked.append(params.message)
        if self.declines:
            return ElicitResult(action="decline")
        wanted = params.requestedSchema["properties"]
        return ElicitResult(action="accept", content={name: ANSWERS[name] for name in wanted})

    async def sample(self, _context, _params) -> CreateMessageResult:
        text = TextContent(type="text", text="Paris")
        return CreateMessageResult(role="assistant", content=text, model="a model")

    async def roots(self, _context) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri="file:///work")])


def expect(what: str, got, wanted) -> None:
    if got != wanted:
        raise AssertionError(f"{what}: {got!r}, expected {wanted!r}")


def answer(result: CallToolResult) -> tuple[bool, str]:
    return bool(result.isError), "".join(part.text for part in result.content if part.type == "text")


async def text(session: ClientSession, tool: str, wanted: str, arguments: dict | None = None) -> None:
    expect("the result", answer(await session.call_tool(tool, arguments)), (False, wanted))


async def list_tools(session: ClientSession, _user: User) -> None:
    tools = (await session.list_tools()).tools
    expect("the tools", sorted(tool.name for tool in tools), TOOLS)


async def call(session: ClientSession, _user: User) -> None:
    await text(session, "add", "5", {"a": 2, "b": 3})


async def error(session: ClientSession, _user: User) -> None:
    expect("the result", answer(await session.call_tool("fail")), (True, "out of order"))


async def wrong_argument(session: ClientSession, _user: User) -> None:
    try:
        result = await session.call_tool("add", {"a": "two", "b": 3})
    except McpError as refused:
        expect("the error's code", refused.error.code, INVALID_PARAMS)
    else:
        expect("isError", result.isError, True)


async def progress(session: ClientSession, _user: User) -> None:
    received = []

    async def hear(progress: float, total: float | None, _message: str | None) -> None:
        received.append((progress, total))

    result = await session.call_tool("count", progress_callback=hear)
    expect("the progress", received, [(1, 3), (2, 3), (3, 3)])
    expect("the result", answer(result), (False, "counted"))


async def cancel(session: ClientSession, _user: User) -> None:
    runs = asyncio.Event()

    async def hear(*_progress) -> None:
        runs.set()

    # The SDK does not tell the ID of a request, and sends nothing when its task is cancelled.
    request_id = session._request_id
    call = asyncio.create_task(session.call_tool("wait", progress_callback=hear))
    heard = asyncio.create_task(runs.wait())
    await asyncio.wait([call, heard], return_when=asyncio.FIRST_COMPLETED)
    expect("the call is running", call.done(), False)
    params = CancelledNotificationParams(requestId=request_id)
    await session.send_notification(ClientNotification(CancelledNotification(params=params)))
    call.cancel()
    await text(session, "cancelled", "cancelled")


async def form(session: ClientSession, user: User) -> None:
    await text(session, "form", "Hello, Ada!")
    expect("the questions", user.asked, ["What is your name?"])


async def decline(session: ClientSession, user: User) -> None:
    user.declines = True
    await text(session, "form", "declined")


async def url(session: ClientSession, _user: User) -> None:
    await text(session, "url", "logged in")


async def sampling(session: ClientSession, _user: User) -> None:
    await text(session, "model", "Paris")


async def roots(session: ClientSession, _user: User) -> None:
    await text(session, "roots", "file:///work")


async def rounds(session: ClientSession, user: User) -> None:
    await text(session, "rounds", "Hello, Ada! true")
    expect("the questions", user.asked, ["What is your name?", "Are you sure, Ada?"])


async def joined(session: ClientSession, user: User) -> None:
    await text(session, "joined", "Ada Lovelace")
    expect("the questions", sorted(user.asked), ["First name?", "Last name?"])


async def state_only(session: ClientSession, user: User) -> None:
    await text(session, "poll", "done")
    expect("the questions", user.asked, [])


async def prompt(session: ClientSession, _user: User) -> None:
    messages = (await session.get_prompt("brief")).messages
    expect("the messages", [(m.role, m.content.text) for m in messages], [("user", "A brief for Ada")])


async def template(session: ClientSession, _user: User) -> None:
    contents = (await session.read_resource("note://7")).contents
    expect("the contents", [part.text for part in contents], ["note 7 of Ada"])


ROWS = {
    "list": list_tools,
    "call": call,
    "error": error,
    "wrong argument": wrong_argument,
    "progress": progress,
    "cancel": cancel,
    "form": form,
    "decline": decline,
    "url": url,
    "sampling": sampling,
    "roots": roots,
    "rounds": rounds,
    "joined": joined,
    "state only": state_only,
    "prompt": prompt,
    "template": template,
}


async def initialize(opened: InitializeResult) -> None:
    expect("the revision", opened.protocolVersion, VERSION)


async def run(name: str, row) -> None:
    try:
        await row
        outcome = "ok"
    except Exception as why:
        outcome = f"{type(why).__name__}: {why}".replace("\n", " ")
    print(name, outcome, sep="\t", flush=True)


async def main(arguments: list[str]) -> None:
    target = arguments[0]
    if "://" in target:
        transport = streamable_http_client(target)
    else:
        command = StdioServerParameters(command=target, args=arguments[1:], env=dict(os.environ))
        transport = stdio_client(command)
    user = User()
    async with (
        transport as (read, write, *_),
        ClientSession(
            read,
            write,
            read_timeout_seconds=timedelta(seconds=10),
            elicitation_callback=user.elicit,
            sampling_callback=user.sample,
            list_roots_callback=user.roots,
        ) as session,
    ):
        await run("initialize", initialize(await session.initialize()))
        for name, row in ROWS.items():
            user.declines, user.asked = False, []
            await run(name, row(session, user))


asyncio.run(main(sys.argv[1:]))
