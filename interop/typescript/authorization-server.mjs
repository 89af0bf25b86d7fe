// An MCP server on the TypeScript SDK behind an authorization server: `authorization-server.mjs
// ISSUER`. It prints `listening PORT` and serves until its stdin ends.

import { createPublicKey, verify } from "node:crypto";
import { createServer } from "node:http";

import { toNodeHandler } from "@modelcontextprotocol/node";
import {
  McpServer,
  OAuthError,
  OAuthErrorCode,
  createMcpHandler,
  getOAuthProtectedResourceMetadataUrl,
  oauthMetadataResponse,
  requireBearerAuth,
} from "@modelcontextprotocol/server";

const issuer = process.argv[2];
const json = async (url) => (await fetch(url, { signal: AbortSignal.timeout(10_000) })).json();
const oauthMetadata = await json(`${issuer}/.well-known/oauth-authorization-server`);

// Verifies JWTs with the keys of the issuer.
async function verifyAccessToken(token) {
  const [header, payload, signature] = token.split(".");
  const decode = (part) => JSON.parse(Buffer.from(part, "base64url"));
  const { keys } = await json(oauthMetadata.jwks_uri);
  const jwk = keys.find(({ kid }) => kid === decode(header).kid);
  const key = jwk && { key: createPublicKey({ key: jwk, format: "jwk" }), dsaEncoding: "ieee-p1363" };
  const signed = Buffer.from(`${header}.${payload}`);
  const { aud, client_id, exp, iss, scope, sub } = decode(payload);
  if (!key || !verify("sha256", signed, key, Buffer.from(signature, "base64url")) || iss !== issuer) {
    throw new OAuthError(OAuthErrorCode.InvalidToken, "not a token of the issuer");
  }
  const resource = new URL(aud);
  return { token, clientId: client_id, scopes: scope.split(" "), expiresAt: exp, resource, extra: { sub } };
}

function server() {
  const server = new McpServer({ name: "typescript", version: "1.0.0" });
  server.registerTool("whoami", {}, async ({ http: { authInfo } }) => {
    return { content: [{ type: "text", text: `${authInfo.extra.sub} may ${authInfo.scopes.join(" ")}` }] };
  });
  return server;
}

const handler = createMcpHandler(server, { legacy: "reject" });
const respond = toNodeHandler({
  async fetch(request) {
    const url = new URL(`http://127.0.0.1:${http.address().port}/mcp`);
    const resource = { oauthMetadata, resourceServerUrl: url, scopesSupported: ["booking:read"] };
    const metadata = oauthMetadataResponse(request, resource);
    if (metadata) return metadata;
    const gate = requireBearerAuth({
      verifier: { verifyAccessToken },
      requiredScopes: ["booking:read"],
      resourceMetadataUrl: getOAuthProtectedResourceMetadataUrl(url),
      expectedResource: url,
    });
    const authInfo = await gate(request);
    return authInfo instanceof Response ? authInfo : handler.fetch(request, { authInfo });
  },
});
const http = createServer(respond);
http.listen(0, "127.0.0.1", () => console.log("listening", http.address().port));
process.stdin.on("end", () => process.exit()).resume();
