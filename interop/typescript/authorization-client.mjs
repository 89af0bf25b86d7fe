// Logs in at the authorization server of an MCP server with the TypeScript SDK's client, and calls
// tools: `authorization-client.mjs URL TOOL…`. It prints the text of each. With `--client ID
// ISSUER` first, the client is known to that authorization server, and does not register.

import { Client, StreamableHTTPClientTransport, UnauthorizedError } from "@modelcontextprotocol/client";

const REDIRECT_URI = "http://127.0.0.1:9/callback";

const args = process.argv.slice(2);
// What the client stores.
const stored = {};
if (args[0] === "--client") {
  stored.client = { client_id: args[1], issuer: args[2], token_endpoint_auth_method: "none" };
  args.splice(0, 3);
}
const [target, ...tools] = args;
const provider = {
  redirectUrl: REDIRECT_URI,
  clientMetadata: { client_name: "typescript", redirect_uris: [REDIRECT_URI], application_type: "native" },
  clientInformation: () => stored.client,
  saveClientInformation: (client) => { stored.client = client; },
  tokens: () => stored.tokens,
  saveTokens: (tokens) => { stored.tokens = tokens; },
  codeVerifier: () => stored.verifier,
  saveCodeVerifier: (verifier) => { stored.verifier = verifier; },
  discoveryState: () => stored.discovery,
  saveDiscoveryState: (discovery) => { stored.discovery = discovery; },
  state: () => (stored.state = crypto.randomUUID()),
  redirectToAuthorization: async (url) => { stored.callback = await logIn(url); },
};

// Fills in the forms of the authorization server, and returns the parameters of the callback.
async function logIn(url) {
  const cookies = new Map();
  let form;
  for (let requests = 0; requests < 20; requests++) {
    const headers = { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join("; ") };
    const init = { headers, redirect: "manual", signal: AbortSignal.timeout(10_000) };
    const page = await fetch(url, form ? { ...init, method: "POST", body: new URLSearchParams(form) } : init);
    for (const cookie of page.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie);
      cookies.set(name, value);
    }
    const text = await page.text();
    if (page.headers.has("location")) {
      url = new URL(page.headers.get("location"), url);
      form = undefined;
      if (url.href.startsWith(REDIRECT_URI)) return url.searchParams;
      continue;
    }
    if (!page.ok) throw new Error(`${url} answered ${page.status}`);
    form = text.includes('name="login"') ? { prompt: "login", login: "alice" } : { prompt: "consent" };
  }
  throw new Error("too many requests");
}

const url = new URL(target);

// Does something with a connection, and again after a login that it needs.
async function withLogin(action) {
  for (let logins = 0; ; logins++) {
    const transport = new StreamableHTTPClientTransport(url, { authProvider: provider });
    // The revision is required explicitly, so that a fallback to an older one fails.
    const options = { versionNegotiation: { mode: { pin: "2026-07-28" } } };
    const client = new Client({ name: "typescript", version: "1.0.0" }, options);
    try {
      await client.connect(transport);
      return await action(client);
    } catch (error) {
      if (!(error instanceof UnauthorizedError) || logins > 0) throw error;
      if (stored.callback.get("state") !== stored.state) throw new Error("another state");
      await transport.finishAuth(stored.callback);
    } finally {
      await client.close();
    }
  }
}

for (const name of tools) {
  const { content } = await withLogin((client) => client.callTool({ name }));
  console.log(content[0].text);
}
