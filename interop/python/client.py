"""The Python SDK's client on another SDK's server: `client.py URL` over HTTP,
`client.py COMMAND ARGUMENT…` over stdio. `interop/README.md` describes its calls and its output.
"""

import asyncio
import os
import sys

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import (
    INVALID_PARAMS,
    CallToolResult,
    CreateMessageResult,
    DiscoverRequest,
    DiscoverResult,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    ListRootsResult,
    Root,
    TextContent,
)

VERSION = "2026-07-28"
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
        wanted = params.requested_schema["properties"]
        return ElicitResult(action="accept", content={name: ANSWERS[name] for name in wanted})

    async def sample(self, _context, _params) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(text="Paris"), model="a model")

    async def roots(self, _context) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri="file:///work")])


def expect(what: str, got, wanted) -> None:
    if got != wanted:
        raise AssertionError(f"{what}: {got!r}, expected {wanted!r}")


def answer(result: CallToolResult) -> tuple[bool, str]:
    return bool(result.is_error), "".join(part.text for part in result.content if part.type == "text")


async def text(client: Client, tool: str, wanted: str, arguments: dict | None = None) -> None:
    expect("the result", answer(await client.call_tool(tool, arguments)), (False, wanted))


async def discover(client: Client, _person: User) -> None:
    # The client took the revision as given, so this request is the first to ask the server.
    result = await client.session.send_request(DiscoverRequest(), DiscoverResult)
    versions = result.supported_versions
    expect(f"{versions} contains {VERSION}", VERSION in versions, True)


async def list_tools(client: Client, _person: User) -> None:
    tools = (await client.list_tools()).tools
    expect("the tools", sorted(tool.name for tool in tools), TOOLS)


async def call(client: Client, _person: User) -> None:
    await text(client, "add", "5", {"a": 2, "b": 3})


async def error(client: Client, _person: User) -> None:
    expect("the result", answer(await client.call_tool("fail")), (True, "out of order"))


async def wrong_argument(client: Client, _person: User) -> None:
    try:
        result = await client.call_tool("add", {"a": "two", "b": 3})
    except MCPError as refused:
        expect("the error's code", refused.error.code, INVALID_PARAMS)
    else:
        expect("isError", result.is_error, True)


async def progress(client: Client, _person: User) -> None:
    received = []

    async def hear(progress: float, total: float | None, _message: str | None) -> None:
        received.append((progress, total))

    result = await client.call_tool("count", progress_callback=hear)
    expect("the progress", received, [(1, 3), (2, 3), (3, 3)])
    expect("the result", answer(result), (False, "counted"))


async def cancel(client: Client, _person: User) -> None:
    with anyio.CancelScope() as scope:

        async def hear(*_progress) -> None:
            scope.cancel()

        await client.call_tool("wait", progress_callback=hear)
    expect("the call is cancelled", scope.cancelled_caught, True)
    await text(client, "cancelled", "cancelled")


async def form(client: Client, user: User) -> None:
    await text(client, "form", "Hello, Ada!")
    expect("the questions", user.asked, ["What is your name?"])


async def decline(client: Client, user: User) -> None:
    user.declines = True
    await text(client, "form", "declined")


async def url(client: Client, _person: User) -> None:
    await text(client, "url", "logged in")


async def sampling(client: Client, _person: User) -> None:
    await text(client, "model", "Paris")


async def roots(client: Client, _person: User) -> None:
    await text(client, "roots", "file:///work")


async def rounds(client: Client, user: User) -> None:
    await text(client, "rounds", "Hello, Ada! true")
    expect("the questions", user.asked, ["What is your name?", "Are you sure, Ada?"])


async def joined(client: Client, user: User) -> None:
    await text(client, "joined", "Ada Lovelace")
    expect("the questions", sorted(user.asked), ["First name?", "Last name?"])


async def state_only(client: Client, user: User) -> None:
    await text(client, "poll", "done")
    expect("the questions", user.asked, [])


async def prompt(client: Client, _person: User) -> None:
    messages = (await client.get_prompt("brief")).messages
    expect("the messages", [(m.role, m.content.text) for m in messages], [("user", "A brief for Ada")])


async def template(client: Client, _person: User) -> None:
    contents = (await client.read_resource("note://7")).contents
    expect("the contents", [part.text for part in contents], ["note 7 of Ada"])


ROWS = {
    "discover": discover,
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


async def main(target: str | StdioServerParameters) -> None:
    user = User()
    callbacks = {
        "elicitation_callback": user.elicit,
        "sampling_callback": user.sample,
        "list_roots_callback": user.roots,
    }
    # The revision is required explicitly, so that a fallback to an older one fails.
    async with Client(target, mode=VERSION, read_timeout_seconds=10, **callbacks) as client:
        for name, row in ROWS.items():
            user.declines, user.asked = False, []
            try:
                await row(client, user)
                outcome = "ok"
            except Exception as why:
                outcome = f"{type(why).__name__}: {why}".replace("\n", " ")
            print(name, outcome, sep="\t", flush=True)


target = sys.argv[1]
if "://" not in target:
    target = StdioServerParameters(command=target, args=sys.argv[2:], env=dict(os.environ))
asyncio.run(main(target))
