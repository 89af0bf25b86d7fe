// A server on the 1.x TypeScript SDK, with one tool, prompt or template for each row of the table
// that `cargo xtask interop` prints. `interop/README.md` describes their behaviour.
//
// The server prints `listening PORT` and serves until it is killed. With `--stdio`, it serves its
// parent process over stdin and stdout.

import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";

import { McpServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

const CAPITAL = {
  messages: [{ role: "user", content: { type: "text", text: "Capital of France?" } }],
  maxTokens: 10,
};
const LOGIN = {
  mode: "url",
  message: "Please log in",
  url: "https://example.com/login",
  elicitationId: "login",
};

const text = (text) => ({ content: [{ type: "text", text }] });

// Resolved when a call of `wait` was cancelled.
const { promise: cancellation, resolve: noteCancellation } = Promise.withResolvers();

// Returns a server. Each session needs its own.
function newServer() {
  const mcp = new McpServer({ name: "typescript-1", version: "1.0.0" });
  const tool = (name, call) => mcp.registerTool(name, {}, call);

  // Asks a form with one field, in the response to the request `requestId`.
  async function ask({ requestId }, message, name, type = "string") {
    const requestedSchema = { type: "object", properties: { [name]: { type } }, required: [name] };
    const params = { message, requestedSchema };
    const answer = await mcp.server.elicitInput(params, { relatedRequestId: requestId });
    return answer.action === "accept" ? answer.content[name] : undefined;
  }

  const inputSchema = { a: z.int(), b: z.int() };
  mcp.registerTool("add", { inputSchema }, async ({ a, b }) => text(`${a + b}`));
  tool("fail", async () => {
    throw new Error("out of order");
  });
  tool("count", async ({ _meta, sendNotification }) => {
    const progressToken = _meta?.progressToken;
    for (let progress = 1; progressToken !== undefined && progress <= 3; progress++) {
      const params = { progressToken, progress, total: 3 };
      await sendNotification({ method: "notifications/progress", params });
    }
    return text("counted");
  });
  tool("wait", async ({ _meta, signal, sendNotification }) => {
    const aborted = once(signal, "abort");
    const progressToken = _meta?.progressToken;
    if (progressToken !== undefined) {
      await sendNotification({ method: "notifications/progress", params: { progressToken, progress: 1 } });
    }
    await aborted;
    noteCancellation();
    return text("");
  });
  tool("cancelled", async () => {
    await cancellation;
    return text("cancelled");
  });
  tool("form", async (extra) => {
    const name = await ask(extra, "What is your name?", "name");
    return text(name === undefined ? "declined" : `Hello, ${name}!`);
  });
  tool("url", async ({ requestId }) => {
    const answer = await mcp.server.elicitInput(LOGIN, { relatedRequestId: requestId });
    if (answer.action !== "accept") throw new Error("declined");
    return text("logged in");
  });
  // The next two requests are not related to their calls: over HTTP, the SDK sends them in response
  // to the GET.
  tool("model", async () => text((await mcp.server.createMessage(CAPITAL)).content.text));
  tool("roots", async () => text((await mcp.server.listRoots()).roots.map(({ uri }) => uri).join()));
  tool("rounds", async (extra) => {
    const name = await ask(extra, "What is your name?", "name");
    return text(`Hello, ${name}! ${await ask(extra, `Are you sure, ${name}?`, "sure", "boolean")}`);
  });
  tool("joined", async (extra) => {
    const names = [ask(extra, "First name?", "first"), ask(extra, "Last name?", "last")];
    return text((await Promise.all(names)).join(" "));
  });
  // This revision has no state.
  tool("poll", async () => text("done"));

  mcp.registerPrompt("brief", {}, async (extra) => {
    const name = await ask(extra, "For whom?", "name");
    return { messages: [{ role: "user", content: { type: "text", text: `A brief for ${name}` } }] };
  });
  const template = new ResourceTemplate("note://{id}", { list: undefined });
  mcp.registerResource("note", template, {}, async (uri, { id }, extra) => {
    const name = await ask(extra, "Whose?", "name");
    return { contents: [{ uri: uri.href, text: `note ${id} of ${name}` }] };
  });
  return mcp;
}

const sessions = new Map();

// Returns the transport of the session that a request names. A request that names no session gets a
// new transport, which rejects everything except `initialize`.
async function transportOf(session) {
  if (session !== undefined) return sessions.get(session);
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => sessions.set(id, transport),
    onsessionclosed: (id) => sessions.delete(id),
  });
  await newServer().connect(transport);
  return transport;
}

async function handle(request, response) {
  const transport = await transportOf(request.headers["mcp-session-id"]);
  if (request.url !== "/mcp" || transport === undefined) {
    response.writeHead(404).end();
  } else {
    await transport.handleRequest(request, response);
  }
}

if (process.argv.includes("--stdio")) {
  await newServer().connect(new StdioServerTransport());
} else {
  const http = createServer(handle);
  http.listen(0, "127.0.0.1", () => console.log("listening", http.address().port));
}
