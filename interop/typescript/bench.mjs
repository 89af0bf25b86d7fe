// A server on the TypeScript SDK with the tools that `cargo xtask bench` calls. `benches/README.md`
// describes their behaviour.
//
// The server prints `listening PORT` and serves until it is killed. With `--stdio`, it serves its
// parent process over stdin and stdout. `--tools N` adds N tools.

import { createServer } from "node:http";
import { parseArgs } from "node:util";

import { toNodeHandler } from "@modelcontextprotocol/node";
import {
  McpServer,
  acceptedContent,
  createMcpHandler,
  createRequestStateCodec,
  fromJsonSchema,
  inputRequired,
  inputResponse,
} from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const { values: options } = parseArgs({
  options: { stdio: { type: "boolean" }, tools: { type: "string", default: "0" } },
});

// As JSON, because the SDK would convert Zod schemas to JSON for every request.
const object = (properties) => ({ type: "object", properties, required: Object.keys(properties) });
const QUANTITY = object({ quantity: { type: "integer", minimum: 1, maximum: 10 } });
const YES = object({ yes: { type: "boolean" } });

const Text = fromJsonSchema(object({ text: { type: "string" } }));
const Item = fromJsonSchema(object({ item: { type: "string" } }));
const Quantity = fromJsonSchema(QUANTITY);
const Yes = fromJsonSchema(YES);

// The codec of the SDK signs with HMAC-SHA256, and does not encrypt.
const state = createRequestStateCodec({ key: crypto.getRandomValues(new Uint8Array(32)) });

const text = (text) => ({ content: [{ type: "text", text }] });
const form = (message, requestedSchema) => inputRequired.elicit({ message, requestedSchema });
const ask = async (inputRequests, known) =>
  inputRequired({ inputRequests, requestState: await state.mint(known) });

const QUESTIONS = { 5: form("Go on?", YES), 10: form("Really?", YES) };

// Returns the validated answer to a form, or undefined if there is none yet.
function answered({ inputResponses }, key, schema) {
  if (inputResponse(inputResponses, key).kind === "missing") return undefined;
  const answer = acceptedContent(inputResponses, key, schema);
  if (answer === undefined) throw new Error("the answer was declined or does not match the form");
  return answer;
}

async function echo({ text: said }) {
  return text(said);
}

async function length({ text: said }) {
  // `said.length` counts characters of two UTF-16 units twice.
  return text(`${said.length - (said.match(/[\u{10000}-\u{10FFFF}]/gu)?.length ?? 0)}`);
}

async function order({ item }, { mcpReq }) {
  const known = mcpReq.requestState();
  const answer = known?.item === item ? answered(mcpReq, "quantity", Quantity) : undefined;
  if (answer !== undefined) return text(`${answer.quantity} x ${item}`);
  return ask({ quantity: form(`How many of ${item}?`, QUANTITY) }, { item });
}

async function step() {
  return "x".repeat(100);
}

async function plan({ mcpReq }) {
  const results = mcpReq.requestState()?.results ?? [];
  const answer = results.length > 0 ? answered(mcpReq, "yes", Yes) : { yes: true };
  if (answer?.yes === false) throw new Error("declined");
  if (answer !== undefined) {
    if (results.length === 10) return text(`${results.join("").length}`);
    for (let n = 0; n < 5; n++) results.push(await step());
  }
  return ask({ yes: QUESTIONS[results.length] }, { results });
}

async function count({ mcpReq }) {
  const progressToken = mcpReq._meta?.progressToken;
  for (let progress = 1; progressToken !== undefined && progress <= 3; progress++) {
    const params = { progressToken, progress, total: 3 };
    await mcpReq.notify({ method: "notifications/progress", params });
  }
  return text("counted");
}

// The SDK needs a new server for each request.
function server() {
  const server = new McpServer(
    { name: "typescript", version: "1.0.0" },
    { requestState: { verify: state.verify } },
  );
  const tool = (name, description, inputSchema, call) =>
    server.registerTool(name, { description, inputSchema }, call);
  tool("echo", "Says the text again.", Text, echo);
  tool("length", "Counts the characters of the text.", Text, length);
  tool("order", "Orders some of an item.", Item, order);
  tool("plan", "Takes ten steps, and asks after each five.", undefined, plan);
  tool("count", "Counts to three.", undefined, count);
  for (let n = 1; n <= Number(options.tools); n++) tool(`tool-${n}`, "Does one thing", Text, echo);
  return server;
}

if (options.stdio) {
  serveStdio(server, { legacy: "reject" });
} else {
  // A response without progress is sent as JSON.
  const http = createServer(toNodeHandler(createMcpHandler(server, { legacy: "reject" })));
  http.listen(0, "127.0.0.1", () => console.log("listening", http.address().port));
}
