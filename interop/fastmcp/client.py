"""FastMCP's client on another SDK's server: `client.py COMMAND ARGUMENT…` over stdio.
`interop/README.md` describes its calls and its output.
"""

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks import call_tool_task

VERSION = "2026-07-28"


def expect(what: str, got, wanted) -> None:
    if got != wanted:
        raise AssertionError(f"{what}: {got!r}, expected {wanted!r}")


class User:
    """A user who answers the server's questions. Records the questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def elicit(self, message: str, response_type, _params, _context):
        self.asked.append(message)
        return response_type(name="Ada")


def text(result) -> str:
    return "".join(block.text for block in result.content)


async def work(client: Client, _user: User) -> None:
    # Fails if the call does not become a task.
    task = await call_tool_task(client, "work")
    expect("the result", text(await task.result()), "done")


async def ask(client: Client, user: User) -> None:
    task = await call_tool_task(client, "ask")
    expect("the result", text(await task.result()), "Hello, Ada!")
    expect("the questions", user.asked, ["What is your name?"])


async def cancel(client: Client, _user: User) -> None:
    task = await call_tool_task(client, "stuck")
    await task.cancel()
    expect("the status", (await task.wait(timeout=30)).status, "cancelled")


async def main() -> None:
    user = User()
    server = StdioTransport(sys.argv[1], sys.argv[2:])
    async with Client(server, mode=VERSION, elicitation_handler=user.elicit) as client:
        for name, row in (("task", work), ("question", ask), ("cancel", cancel)):
            try:
                await asyncio.wait_for(row(client, user), 30)
                outcome = "ok"
            except Exception as why:
                outcome = f"{type(why).__name__}: {why}".replace("\n", " ")
            print(name, outcome, sep="\t")


asyncio.run(main())
