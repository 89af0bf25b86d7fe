"""A server on Python's SDK, whose tools ask. It says `listening PORT` and serves until it is ended; with
`--stdio` it serves the process that started it."""

import socket
import sys
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from pydantic import BaseModel, Field

server = MCPServer("python")


class Name(BaseModel):
    name: str = Field(min_length=1)


class Sure(BaseModel):
    sure: bool


def ask_name() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


def ask_sure(name: Annotated[Name, Resolve(ask_name)]) -> Elicit[Sure]:
    return Elicit(f"Are you sure, {name.name}?", Sure)


@server.tool()
def greet(
    greeting: str,
    name: Annotated[Name, Resolve(ask_name)],
    sure: Annotated[Sure, Resolve(ask_sure)],
) -> str:
    """Greets, once it knows whom, and that it should."""
    return f"{greeting}, {name.name}! ({sure.sure})"


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


if "--stdio" in sys.argv:
    server.run()
    sys.exit()

listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print("listening", listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning")).run(sockets=[listener])
