// The TypeScript SDK's client completes the booking tool of the quickstart on our server.
//
// `client.mjs URL` over HTTP, `client.mjs COMMAND ARGUMENT…` over stdio.

import assert from "node:assert/strict";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const ANSWERS = [
  ["Where", { place: "inside" }],
  ["not eat", { avoid: "nuts" }],
  ["deposit", { pay: true }],
];
const [target, ...args] = process.argv.slice(2);

async function connected(answer, use) {
  // The revision is named, so that a fall-back to an older one would fail, not pass.
  const versionNegotiation = { mode: { pin: "2026-07-28" } };
  const capabilities = { elicitation: { form: {} } };
  const client = new Client({ name: "typescript", version: "1.0.0" }, { capabilities, versionNegotiation });
  client.setRequestHandler("elicitation/create", async ({ params }) => answer(params));
  const transport = target.includes("://")
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target, args, env: process.env });
  await client.connect(transport);
  try {
    await use(client);
  } finally {
    await client.close();
  }
}

const book = (client, people) => client.callTool({ name: "book", arguments: { people, day: "Friday" } });

const asked = [];
const accept = ({ message }) => {
  asked.push(message);
  return { action: "accept", content: ANSWERS.find(([words]) => message.includes(words))[1] };
};
await connected(accept, async (client) => {
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map(({ name }) => name), ["book"]);
  const result = await book(client, 2);
  assert.ok(!result.isError, JSON.stringify(result));
  assert.match(result.content[0].text, /^Booked table 6 inside for 2 on Friday, no nuts\./);
  assert.equal(asked.length, 3);
  assert.match(asked[2], /deposit/);
});

await connected(() => ({ action: "decline" }), async (client) => {
  const declined = await book(client, 2);
  assert.ok(declined.isError && declined.content[0].text.includes("declined"), JSON.stringify(declined));
  const wrong = await book(client, "two");
  assert.ok(wrong.isError && wrong.content[0].text.includes("people"), JSON.stringify(wrong));
});
console.log("  ok: two rounds, declining, and a wrong argument, with TypeScript's client");
