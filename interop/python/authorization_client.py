"""Logs in at the authorization server of an MCP server with the Python SDK's client, and calls tools:
`authorization_client.py URL TOOL…`. It prints the text of each. With `--client ID ISSUER` first, the
client is known to that authorization server, and does not register.
"""

import asyncio
import sys
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata

REDIRECT_URI = "http://127.0.0.1:9/callback"


class Storage:
    """Keeps the tokens in memory."""

    tokens = None

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self.client = client

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens) -> None:
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client) -> None:
        self.client = client


class User:
    """A user without a browser, who fills in the forms of the authorization server."""

    callback = ""

    async def log_in(self, url: str) -> None:
        form = None
        async with httpx2.AsyncClient() as http:
            for _ in range(20):
                method = "GET" if form is None else "POST"
                page = await http.request(method, url, data=form)
                if "location" in page.headers:
                    url, form = urljoin(url, page.headers["location"]), None
                    if url.startswith(REDIRECT_URI):
                        self.callback = url
                        return
                    continue
                page.raise_for_status()
                is_login = 'name="login"' in page.text
                form = {"prompt": "login", "login": "alice"} if is_login else {"prompt": "consent"}
        raise RuntimeError("too many requests")

    async def answer(self) -> AuthorizationCodeResult:
        query = parse_qs(urlsplit(self.callback).query)
        values = {name: query[name][0] for name in ("code", "state", "iss")}
        return AuthorizationCodeResult(**values)


async def main(client: OAuthClientInformationFull | None, url: str, tools: list[str]) -> None:
    user = User()
    metadata = OAuthClientMetadata(client_name="python", redirect_uris=[REDIRECT_URI])
    auth = OAuthClientProvider(url, metadata, Storage(client), user.log_in, user.answer)
    async with httpx2.AsyncClient(auth=auth, timeout=10) as http:
        transport = streamable_http_client(url, http_client=http)
        # The revision is required explicitly, so that a fallback to an older one fails.
        async with Client(transport, mode="2026-07-28", read_timeout_seconds=10) as client:
            for tool in tools:
                result = await client.call_tool(tool, {})
                print(result.content[0].text, flush=True)


arguments = sys.argv[1:]
client = None
if arguments[0] == "--client":
    client = OAuthClientInformationFull(
        client_id=arguments[1],
        issuer=arguments[2],
        redirect_uris=[REDIRECT_URI],
        token_endpoint_auth_method="none",
    )
    arguments = arguments[3:]
asyncio.run(main(client, arguments[0], arguments[1:]))
