"""An MCP server on the Python SDK behind an authorization server: `authorization_server.py ISSUER`.
It prints `listening PORT` and serves until its stdin ends."""

import os
import socket
import sys
import threading

import jwt
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer

issuer = sys.argv[1]
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
port = listener.getsockname()[1]
url = f"http://127.0.0.1:{port}/mcp"


class Verifier:
    """Verifies JWTs with the keys of the issuer."""

    keys = jwt.PyJWKClient(f"{issuer}/jwks")

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            key = self.keys.get_signing_key_from_jwt(token)
            claims = jwt.decode(token, key, algorithms=["ES256"], audience=url, issuer=issuer)
        except jwt.PyJWTError:
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims["scope"].split(),
            expires_at=claims["exp"],
            resource=claims["aud"],
            subject=claims["sub"],
        )


settings = AuthSettings(
    issuer_url=issuer,
    resource_server_url=url,
    required_scopes=["booking:read"],
    validate_token_resource=True,
)
server = MCPServer("python", log_level="WARNING", token_verifier=Verifier(), auth=settings)


@server.tool()
def whoami() -> str:
    """Names the caller and its scopes."""
    token = get_access_token()
    return f"{token.subject} may {' '.join(token.scopes)}"


def exit_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


threading.Thread(target=exit_with_stdin, daemon=True).start()
print("listening", port, flush=True)
uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning")).run(sockets=[listener])
