// A server on the TypeScript SDK, with one tool, prompt or template for each row of the table that
// `cargo xtask interop` prints. `interop/README.md` describes their behaviour.
//
// The server prints `listening PORT` and serves until it is killed. With `--stdio`, it serves its
// parent process over stdin and stdout.

import { once } from "node:events";
import { createServer } from "node:http";

import { toNodeHandler } from "@modelcontextprotocol/node";
import {
  McpServer,
  ResourceTemplate,
  acceptedContent,
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  inputResponse,
} from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";

const Sum = z.object({ a: z.int(), b: z.int() });
const Name = z.object({ name: z.string() });
const Sure = z.object({ sure: z.boolean() });
const First = z.object({ first: z.string() });
const Last = z.object({ last: z.string() });

const state = createRequestStateCodec({ key: crypto.getRandomValues(new Uint8Array(32)) });

const text = (text) => ({ content: [{ type: "text", text }] });
const form = (message, requestedSchema) => inputRequired.elicit({ message, requestedSchema });
const ask = (inputRequests, requestState) => inputRequired({ inputRequests, requestState });

const NAME = { name: form("What is your name?", Name) };
const URL_PARAMS = { message: "Please log in", url: "https://example.com/login" };
const CAPITAL = {
  messages: [{ role: "user", content: { type: "text", text: "Capital of France?" } }],
  maxTokens: 10,
};

// Resolved when a call of `wait` was cancelled.
const { promise: cancellation, resolve: noteCancellation } = Promise.withResolvers();

// Each tool is called again with the answers to its questions.
const tools = {
  async fail() {
    throw new Error("out of order");
  },

  async count({ mcpReq }) {
    const progressToken = mcpReq._meta?.progressToken;
    for (let progress = 1; progressToken !== undefined && progress <= 3; progress++) {
      const params = { progressToken, progress, total: 3 };
      await mcpReq.notify({ method: "notifications/progress", params });
    }
    return text("counted");
  },

  async wait({ mcpReq }) {
    const aborted = once(mcpReq.signal, "abort");
    const progressToken = mcpReq._meta?.progressToken;
    if (progressToken !== undefined) {
      await mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress: 1 } });
    }
    await aborted;
    noteCancellation();
    return text("");
  },

  async cancelled() {
    await cancellation;
    return text("cancelled");
  },

  async form({ mcpReq: { inputResponses } }) {
    if (inputResponse(inputResponses, "name").kind !== "elicit") return ask(NAME);
    const answer = acceptedContent(inputResponses, "name", Name);
    return text(answer ? `Hello, ${answer.name}!` : "declined");
  },

  async url({ mcpReq: { inputResponses } }) {
    const answer = inputResponse(inputResponses, "login");
    if (answer.kind !== "elicit") return ask({ login: inputRequired.elicitUrl(URL_PARAMS) });
    if (answer.action !== "accept") throw new Error("declined");
    return text("logged in");
  },

  async model({ mcpReq: { inputResponses } }) {
    const answer = inputResponse(inputResponses, "capital");
    if (answer.kind !== "sampling") return ask({ capital: inputRequired.createMessage(CAPITAL) });
    return text(answer.result.content.text);
  },

  async roots({ mcpReq: { inputResponses } }) {
    const answer = inputResponse(inputResponses, "roots");
    if (answer.kind !== "roots") return ask({ roots: inputRequired.listRoots() });
    return text(answer.roots.map(({ uri }) => uri).join());
  },

  async rounds({ mcpReq: { inputResponses, requestState } }) {
    // Clients send only the answers of the last round, so the state carries the name.
    const known = requestState() ?? acceptedContent(inputResponses, "name", Name);
    if (known === undefined) return ask(NAME);
    const answer = acceptedContent(inputResponses, "sure", Sure);
    if (answer === undefined) {
      return ask({ sure: form(`Are you sure, ${known.name}?`, Sure) }, await state.mint(known));
    }
    return text(`Hello, ${known.name}! ${answer.sure}`);
  },

  async joined({ mcpReq: { inputResponses } }) {
    const first = acceptedContent(inputResponses, "first", First);
    const last = acceptedContent(inputResponses, "last", Last);
    if (first === undefined || last === undefined) {
      return ask({ first: form("First name?", First), last: form("Last name?", Last) });
    }
    return text(`${first.first} ${last.last}`);
  },

  async poll({ mcpReq: { requestState } }) {
    return requestState() ? text("done") : inputRequired({ requestState: await state.mint(true) });
  },
};

async function brief({ mcpReq: { inputResponses } }) {
  const answer = acceptedContent(inputResponses, "name", Name);
  if (answer === undefined) return ask({ name: form("For whom?", Name) });
  return { messages: [{ role: "user", content: { type: "text", text: `A brief for ${answer.name}` } }] };
}

async function note(uri, { id }, { mcpReq: { inputResponses } }) {
  const answer = acceptedContent(inputResponses, "name", Name);
  if (answer === undefined) return ask({ name: form("Whose?", Name) });
  return { contents: [{ uri: uri.href, text: `note ${id} of ${answer.name}` }] };
}

function server() {
  const server = new McpServer(
    { name: "typescript", version: "1.0.0" },
    { requestState: { verify: state.verify } },
  );
  server.registerTool("add", { inputSchema: Sum }, async ({ a, b }) => text(`${a + b}`));
  for (const [name, call] of Object.entries(tools)) {
    server.registerTool(name, {}, call);
  }
  server.registerPrompt("brief", {}, brief);
  server.registerResource("note", new ResourceTemplate("note://{id}", { list: undefined }), {}, note);
  return server;
}

if (process.argv.includes("--stdio")) {
  serveStdio(server, { legacy: "reject" });
} else {
  const http = createServer(toNodeHandler(createMcpHandler(server, { legacy: "reject" })));
  http.listen(0, "127.0.0.1", () => console.log("listening", http.address().port));
}
