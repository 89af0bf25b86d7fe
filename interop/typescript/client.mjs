// The TypeScript SDK's client on another SDK's server: `client.mjs URL` over HTTP,
// `client.mjs COMMAND ARGUMENT…` over stdio. `interop/README.md` describes its calls and its
// output.

import { isDeepStrictEqual } from "node:util";

import { Client, ProtocolError, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const VERSION = "2026-07-28";
const TOOLS = "add cancelled count fail form joined model poll roots rounds url wait".split(" ");
const ANSWERS = { name: "Ada", sure: true, first: "Ada", last: "Lovelace" };
const INVALID_PARAMS = -32602;

// The questions that the user was asked, whether the user declines, the received progress, and what
// to do when more is received.
let asked = [];
let declines = false;
let seen = [];
let onSeen = () => {};

const client = new Client(
  { name: "typescript", version: "1.0.0" },
  {
    capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} },
    // The revision is required explicitly, so that a fallback to an older one fails.
    versionNegotiation: { mode: { pin: VERSION } },
  },
);

client.setRequestHandler("elicitation/create", async ({ params }) => {
  if (params.mode === "url") {
    equal("the URL", params.url, "https://example.com/login");
    return { action: "accept" };
  }
  asked.push(params.message);
  if (declines) {
    return { action: "decline" };
  }
  const wanted = Object.keys(params.requestedSchema.properties);
  return { action: "accept", content: Object.fromEntries(wanted.map((name) => [name, ANSWERS[name]])) };
});
client.setRequestHandler("sampling/createMessage", async () => {
  return { role: "assistant", content: { type: "text", text: "Paris" }, model: "a model" };
});
client.setRequestHandler("roots/list", async () => ({ roots: [{ uri: "file:///work" }] }));
// `onprogress` is not used: over stdio it misses progress that is read together with the result.
// The result removes the callback at once, while each notification waits for a microtask.
client.setNotificationHandler("notifications/progress", ({ params: { progressToken, progress, total } }) => {
  seen.push([progressToken, progress, total]);
  onSeen();
});

function equal(what, got, wanted) {
  if (!isDeepStrictEqual(got, wanted)) {
    throw new Error(`${what}: ${JSON.stringify(got)}, not ${JSON.stringify(wanted)}`);
  }
}

function answer({ isError = false, content }) {
  return [isError, content.map(({ text = "" }) => text).join("")];
}

async function text(name, wanted, args = {}) {
  equal("the result", answer(await client.callTool({ name, arguments: args })), [false, wanted]);
}

async function discover() {
  const { supportedVersions } = await client.discover();
  equal(`${supportedVersions} contains ${VERSION}`, supportedVersions.includes(VERSION), true);
}

async function list() {
  const { tools } = await client.listTools();
  equal("the tools", tools.map(({ name }) => name).sort(), TOOLS);
}

async function error() {
  equal("the result", answer(await client.callTool({ name: "fail" })), [true, "out of order"]);
}

async function wrongArgument() {
  let result;
  try {
    result = await client.callTool({ name: "add", arguments: { a: "two", b: 3 } });
  } catch (refused) {
    if (!(refused instanceof ProtocolError)) throw refused;
    equal("the error's code", refused.code, INVALID_PARAMS);
    return;
  }
  equal("isError", result.isError, true);
}

async function progress() {
  const progressToken = "counting";
  const result = await client.callTool({ name: "count", _meta: { progressToken } });
  equal("the progress", seen, [1, 2, 3].map((progress) => [progressToken, progress, 3]));
  equal("the result", answer(result), [false, "counted"]);
}

async function cancel() {
  const controller = new AbortController();
  const { signal } = controller;
  onSeen = () => controller.abort();
  const call = client.callTool({ name: "wait", _meta: { progressToken: "waiting" } }, { signal });
  const ended = await call.then(answer, (why) => (signal.aborted ? "cancelled" : `${why}`));
  equal("the end of the call", ended, "cancelled");
  await text("cancelled", "cancelled");
}

async function form() {
  await text("form", "Hello, Ada!");
  equal("the questions", asked, ["What is your name?"]);
}

async function decline() {
  declines = true;
  await text("form", "declined");
}

async function rounds() {
  await text("rounds", "Hello, Ada! true");
  equal("the questions", asked, ["What is your name?", "Are you sure, Ada?"]);
}

async function joined() {
  await text("joined", "Ada Lovelace");
  equal("the questions", asked.sort(), ["First name?", "Last name?"]);
}

async function stateOnly() {
  await text("poll", "done");
  equal("the questions", asked, []);
}

async function prompt() {
  const { messages } = await client.getPrompt({ name: "brief" });
  const texts = messages.map(({ role, content }) => [role, content.text]);
  equal("the messages", texts, [["user", "A brief for Ada"]]);
}

async function template() {
  const { contents } = await client.readResource({ uri: "note://7" });
  equal("the contents", contents.map(({ text }) => text), ["note 7 of Ada"]);
}

const rows = {
  "discover": discover,
  "list": list,
  "call": () => text("add", "5", { a: 2, b: 3 }),
  "error": error,
  "wrong argument": wrongArgument,
  "progress": progress,
  "cancel": cancel,
  "form": form,
  "decline": decline,
  "url": () => text("url", "logged in"),
  "sampling": () => text("model", "Paris"),
  "roots": () => text("roots", "file:///work"),
  "rounds": rounds,
  "joined": joined,
  "state only": stateOnly,
  "prompt": prompt,
  "template": template,
};

const [target, ...args] = process.argv.slice(2);
await client.connect(
  target.includes("://")
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target, args, env: process.env }),
);
for (const [name, row] of Object.entries(rows)) {
  asked = [];
  declines = false;
  seen = [];
  onSeen = () => {};
  const outcome = await row().then(() => "ok", (why) => `${why}`.replaceAll("\n", " "));
  console.log(`${name}\t${outcome}`);
}
await client.close();
