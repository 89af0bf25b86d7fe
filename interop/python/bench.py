"""A server on the Python SDK with the tools that `cargo xtask bench` calls. `benches/README.md`
describes their behaviour.

The server prints `listening PORT` and serves until it is killed. With `--stdio`, it serves its
parent process over stdin and stdout.
`--tools N` adds N tools. `--json` makes every response JSON, which is faster, but then the SDK
sends no progress.
"""

import argparse
import json
import socket
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel, Field, ValidationError

parser = argparse.ArgumentParser()
parser.add_argument("--stdio", action="store_true")
parser.add_argument("--json", action="store_true")
parser.add_argument("--tools", type=int, default=0)
options = parser.parse_args()

# The SDK seals `requestState` with AES-GCM, under a random key.
server = MCPServer("python", version="1.0.0", log_level="WARNING")


class Quantity(BaseModel):
    quantity: Annotated[int, Field(strict=True, ge=1, le=10)]


class Yes(BaseModel):
    yes: Annotated[bool, Field(strict=True)]


# Functions that are not async run in a thread, which takes longer than their work.
async def ask_quantity(item: str) -> Elicit[Quantity]:
    return Elicit(f"How many of {item}?", Quantity)


@server.tool(structured_output=False)
async def echo(text: str) -> str:
    """Says the text again."""
    return text


@server.tool(structured_output=False)
async def length(text: str) -> str:
    """Counts the characters of the text."""
    return str(len(text))


@server.tool(structured_output=False)
async def order(item: str, answer: Annotated[Quantity, Resolve(ask_quantity)]) -> str:
    """Orders some of an item."""
    return f"{answer.quantity} x {item}"


async def step() -> str:
    return "x" * 100


# A resolver without a question runs again in every round, so this tool keeps the steps in a state
# of its own.
QUESTIONS = {
    done: ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=Yes.model_json_schema()))
    for done, message in [(5, "Go on?"), (10, "Really?")]
}


@server.tool(structured_output=False)
async def plan(context: Context) -> str | InputRequiredResult:
    """Takes ten steps, and asks after each five."""
    results = json.loads(context.request_state or "[]")
    if not results or says_yes((context.input_responses or {}).get("yes")):
        if len(results) == 10:
            return str(len("".join(results)))
        results += [await step() for _ in range(5)]
    return InputRequiredResult(
        input_requests={"yes": QUESTIONS[len(results)]},
        request_state=json.dumps(results),
    )


def says_yes(answer: object) -> bool:
    """Returns true for the answer yes, false for no answer. Any other answer ends the call."""
    if answer is None:
        return False
    if not isinstance(answer, ElicitResult) or answer.action != "accept":
        raise ToolError("declined")
    try:
        if Yes.model_validate(answer.content).yes:
            return True
    except ValidationError as wrong:
        raise ToolError("the answer does not match the form") from wrong
    raise ToolError("declined")


@server.tool(structured_output=False)
async def count(context: Context) -> str:
    """Counts to three."""
    for n in range(1, 4):
        await context.report_progress(n, 3)
    return "counted"


for n in range(1, options.tools + 1):
    server.add_tool(echo, f"tool-{n}", description="Does one thing", structured_output=False)

if options.stdio:
    server.run()
else:
    # Without `json_response`, the SDK still uses a stream only for calls that send progress.
    app = server.streamable_http_app(stateless_http=True, json_response=options.json)
    settings = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="warning")
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print("listening", listener.getsockname()[1], flush=True)
    uvicorn.Server(settings).run(sockets=[listener])
