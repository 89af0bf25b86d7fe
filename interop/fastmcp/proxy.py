"""FastMCP's proxy in front of another server, for the benchmark: `proxy.py URL`.

The proxy prints `listening PORT` and serves until it is killed.
"""

import socket
import sys

import uvicorn
from fastmcp.server import create_proxy

listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print("listening", listener.getsockname()[1], flush=True)
app = create_proxy(sys.argv[1]).http_app(path="/mcp", json_response=True, stateless_http=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
