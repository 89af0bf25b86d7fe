"""Completes the booking tool of the quickstart on our server with the Python SDK's client:
`booking.py URL`."""

import asyncio
import sys

from mcp import Client
from mcp_types import ElicitResult

ANSWERS = {
    "Where": {"place": "inside"},
    "not eat": {"avoid": "nuts"},
    "deposit": {"pay": True},
}


async def main(target: str) -> None:
    asked: list[str] = []

    async def elicit(_context, params) -> ElicitResult:
        asked.append(params.message)
        content = next(answer for word, answer in ANSWERS.items() if word in params.message)
        return ElicitResult(action="accept", content=content)

    # The revision is required explicitly, so that a fallback to an older one fails.
    async with Client(target, elicitation_callback=elicit, mode="2026-07-28") as client:
        tools = await client.list_tools()
        assert [tool.name for tool in tools.tools] == ["book"], tools
        result = await client.call_tool("book", {"people": 2, "day": "Friday"})
        assert not result.is_error, result
        text = result.content[0].text
        assert text.startswith("Booked table 6 inside for 2 on Friday, no nuts."), text
        assert len(asked) == 3 and "deposit" in asked[2], asked

        async def decline(_context, _params) -> ElicitResult:
            return ElicitResult(action="decline")

    async with Client(target, elicitation_callback=decline, mode="2026-07-28") as client:
        result = await client.call_tool("book", {"people": 2, "day": "Friday"})
        assert result.is_error and "declined" in result.content[0].text, result
        result = await client.call_tool("book", {"people": "two", "day": "Friday"})
        assert result.is_error and "people" in result.content[0].text, result
    print("  ok: two rounds, declining, and a wrong argument, with the Python SDK's client")


asyncio.run(main(sys.argv[1]))
