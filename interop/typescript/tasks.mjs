// The client of `@modelcontextprotocol/ext-tasks` on another SDK's server: `tasks.mjs URL`.
// `interop/README.md` describes its calls and its output.

import { isDeepStrictEqual } from "node:util";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient } from "@modelcontextprotocol/ext-tasks/client";

const VERSION = "2026-07-28";
const INFO = { name: "ext-tasks", version: "0.2.2" };
const CAPABILITIES = { elicitation: { form: {} } };
const url = process.argv[2];

const client = new Client(INFO, {
  capabilities: CAPABILITIES,
  versionNegotiation: { mode: { pin: VERSION } },
});

// The SDK rejects results of the type `task`, so the package leaves these requests to its user. Our
// server answers them with JSON.
let last = 0;
async function rawDispatch({ method, params }, { signal, context } = {}) {
  const headers = {
    accept: "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-method": method,
    "mcp-protocol-version": VERSION,
    ...(method === "tools/call" ? { "mcp-name": params.name } : {}),
    ...context?.headers,
  };
  last += 1;
  const body = JSON.stringify({ jsonrpc: "2.0", id: `raw-${last}`, method, params });
  const response = await fetch(url, { method: "POST", headers, body, signal });
  const { result, error } = await response.json();
  return error ? { kind: "error", error } : { kind: "result", result };
}

let asked = [];

function equal(what, got, wanted) {
  if (!isDeepStrictEqual(got, wanted)) {
    throw new Error(`${what}: ${JSON.stringify(got)}, not ${JSON.stringify(wanted)}`);
  }
}

async function begin(session, tool) {
  const execution = await session.callTool(tool, {});
  equal("the execution", execution.kind, "task");
  return execution;
}

async function result(session, tool, wanted) {
  const { outcome } = await (await begin(session, tool)).settle();
  equal("the status", outcome.status, "completed");
  equal("the result", outcome.result.content.map(({ text }) => text).join(""), wanted);
}

async function question(session) {
  await result(session, "ask", "Hello, Ada!");
  equal("the questions", asked, ["What is your name?"]);
}

async function cancel(session) {
  const execution = await begin(session, "stuck");
  const settled = execution.settle();
  await execution.cancel();
  equal("the status", (await settled).outcome.status, "cancelled");
}

async function inTime(outcome) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("no outcome after 30 s")), 30_000);
  });
  return Promise.race([outcome, late]).finally(() => clearTimeout(timer));
}

await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const session = createTaskSessionFromClient(client, {
  endpointId: "interop",
  rawDispatch,
  v2RequestFraming: { protocolVersion: VERSION, clientInfo: INFO, clientCapabilities: CAPABILITIES },
  onInputRequest: async ({ kind, params }) => {
    equal("the kind of the question", kind, "elicitation");
    asked.push(params.message);
    return { action: "accept", content: { name: "Ada" } };
  },
});
const rows = [
  ["task", () => result(session, "work", "done")],
  ["question", () => question(session)],
  ["cancel", () => cancel(session)],
];
for (const [name, row] of rows) {
  const outcome = await inTime(row()).then(() => "ok", (why) => `${why}`.replaceAll("\n", " "));
  console.log(`${name}\t${outcome}`);
}
await session.close();
await client.close();
