// A server on the TypeScript SDK, whose tools ask. It says `listening PORT` and serves until it is ended; with
// `--stdio` it serves the process that started it.

import { createServer } from "node:http";

import { toNodeHandler } from "@modelcontextprotocol/node";
import {
  McpServer,
  acceptedContent,
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
} from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";

const Name = z.object({ name: z.string().min(1) });
const Sure = z.object({ sure: z.boolean() });
const state = createRequestStateCodec({ key: crypto.getRandomValues(new Uint8Array(32)) });

const text = (text) => ({ content: [{ type: "text", text }] });
const ask = (key, message, requestedSchema) => ({
  [key]: inputRequired.elicit({ message, requestedSchema }),
});

function server() {
  const server = new McpServer(
    { name: "typescript", version: "1.0.0" },
    { capabilities: { tools: {} }, requestState: { verify: state.verify } },
  );
  const greeting = z.object({ greeting: z.string() });
  server.registerTool("greet", { inputSchema: greeting }, async ({ greeting }, { mcpReq }) => {
    const learned = mcpReq.requestState();
    if (learned === undefined) {
      const name = acceptedContent(mcpReq.inputResponses, "name", Name);
      if (name === undefined) {
        return inputRequired({ inputRequests: ask("name", "What is your name?", Name) });
      }
      const inputRequests = ask("sure", `Are you sure, ${name.name}?`, Sure);
      return inputRequired({ inputRequests, requestState: await state.mint(name) });
    }
    const sure = acceptedContent(mcpReq.inputResponses, "sure", Sure);
    return text(`${greeting}, ${learned.name}! (${sure?.sure ? "True" : "False"})`);
  });
  const sum = z.object({ a: z.int(), b: z.int() });
  server.registerTool("add", { inputSchema: sum }, async ({ a, b }) => text(`${a + b}`));
  return server;
}

if (process.argv.includes("--stdio")) {
  serveStdio(server);
} else {
  const http = createServer(toNodeHandler(createMcpHandler(server, { legacy: "reject" })));
  http.listen(0, "127.0.0.1", () => console.log("listening", http.address().port));
}
