"""A server on FastMCP, with one tool for each row of the table of tasks that `cargo xtask interop`
prints. `interop/README.md` describes their behaviour.

The server prints `listening PORT` and serves until it is killed.
"""

import asyncio
import socket

import uvicorn
from fastmcp import Context, FastMCP
from fastmcp_tasks import TasksExtension
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

server = FastMCP("fastmcp")
# The tasks are in memory, and run in this process.
server.add_extension(TasksExtension(url="memory://"))


@server.tool(task=True)
async def work() -> str:
    """Works."""
    return "done"


# `context.elicit` raises an error inside a task. The tool returns its question instead, and runs again
# with the answer.
@server.tool(task=True)
async def ask(context: Context) -> str | InputRequiredResult:
    """Asks for a name."""
    answer = (context.input_responses or {}).get("name")
    if isinstance(answer, ElicitResult):
        return f"Hello, {answer.content['name']}!" if answer.action == "accept" else answer.action
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    form = ElicitRequestFormParams(message="What is your name?", requested_schema=schema)
    return InputRequiredResult(input_requests={"name": ElicitRequest(params=form)})


@server.tool(task=True)
async def stuck() -> str:
    """Works until its task is cancelled."""
    await asyncio.Event().wait()
    return "not cancelled"


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print("listening", listener.getsockname()[1], flush=True)
app = server.http_app(path="/mcp", json_response=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
