"""Python's client on another SDK's server: `client.py URL` over HTTP, `client.py COMMAND ARGUMENT…` over
stdio. `interop/README.md` says what it does, and prints.
"""

import asyncio
import os
import sys

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
TOOLS = ["add", "count", "fail", "form", "joined", "model", "poll", "roots", "rounds", "url"]
ANSWERS = {"name": "Ada", "sure": True, "first": "Ada", "last": "Lovelace"}


class Person:
    """Who answers what the server asks, and remembers the questions."""

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
        raise AssertionError(f"{what}: {got!r}, not {wanted!r}")


def answer(result: CallToolResult) -> tuple[bool, str]:
    return bool(result.is_error), "".join(part.text for part in result.content if part.type == "text")


async def text(client: Client, tool: str, wanted: str, arguments: dict | None = None) -> None:
    expect("the result", answer(await client.call_tool(tool, arguments)), (False, wanted))


async def discover(client: Client, _person: Person) -> None:
    # The client took the revision as given, so this is the first time that the server is asked.
    result = await client.session.send_request(DiscoverRequest(), DiscoverResult)
    expect(f"{result.supported_versions} has it", VERSION in result.supported_versions, True)


async def list_tools(client: Client, _person: Person) -> None:
    tools = (await client.list_tools()).tools
    expect("the tools", sorted(tool.name for tool in tools), TOOLS)


async def call(client: Client, _person: Person) -> None:
    await text(client, "add", "5", {"a": 2, "b": 3})


async def error(client: Client, _person: Person) -> None:
    expect("the result", answer(await client.call_tool("fail")), (True, "out of order"))


async def wrong_argument(client: Client, _person: Person) -> None:
    try:
        result = await client.call_tool("add", {"a": "two", "b": 3})
    except MCPError as refused:
        expect("the error's code", refused.error.code, INVALID_PARAMS)
    else:
        expect("isError", result.is_error, True)


async def progress(client: Client, _person: Person) -> None:
    heard = []

    async def hear(progress: float, total: float | None, _message: str | None) -> None:
        heard.append((progress, total))

    result = await client.call_tool("count", progress_callback=hear)
    expect("the progress", heard, [(1, 3), (2, 3), (3, 3)])
    expect("the result", answer(result), (False, "counted"))


async def form(client: Client, person: Person) -> None:
    await text(client, "form", "Hello, Ada!")
    expect("the questions", person.asked, ["What is your name?"])


async def decline(client: Client, person: Person) -> None:
    person.declines = True
    await text(client, "form", "declined")


async def url(client: Client, _person: Person) -> None:
    await text(client, "url", "logged in")


async def sampling(client: Client, _person: Person) -> None:
    await text(client, "model", "Paris")


async def roots(client: Client, _person: Person) -> None:
    await text(client, "roots", "file:///work")


async def rounds(client: Client, person: Person) -> None:
    await text(client, "rounds", "Hello, Ada! true")
    expect("the questions", person.asked, ["What is your name?", "Are you sure, Ada?"])


async def joined(client: Client, person: Person) -> None:
    await text(client, "joined", "Ada Lovelace")
    expect("the questions", sorted(person.asked), ["First name?", "Last name?"])


async def state_only(client: Client, person: Person) -> None:
    await text(client, "poll", "done")
    expect("the questions", person.asked, [])


async def prompt(client: Client, _person: Person) -> None:
    messages = (await client.get_prompt("brief")).messages
    expect("the messages", [(m.role, m.content.text) for m in messages], [("user", "A brief for Ada")])


async def template(client: Client, _person: Person) -> None:
    contents = (await client.read_resource("note://7")).contents
    expect("the contents", [part.text for part in contents], ["note 7 of Ada"])


ROWS = {
    "discover": discover,
    "list": list_tools,
    "call": call,
    "error": error,
    "wrong argument": wrong_argument,
    "progress": progress,
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
    person = Person()
    callbacks = {
        "elicitation_callback": person.elicit,
        "sampling_callback": person.sample,
        "list_roots_callback": person.roots,
    }
    # The revision is named, so that a fall-back to an older one would fail, not pass.
    async with Client(target, mode=VERSION, read_timeout_seconds=10, **callbacks) as client:
        for name, row in ROWS.items():
            person.declines, person.asked = False, []
            try:
                await row(client, person)
                outcome = "ok"
            except Exception as why:
                outcome = f"{type(why).__name__}: {why}".replace("\n", " ")
            print(name, outcome, sep="\t", flush=True)


target = sys.argv[1]
if "://" not in target:
    target = StdioServerParameters(command=target, args=sys.argv[2:], env=dict(os.environ))
asyncio.run(main(target))
