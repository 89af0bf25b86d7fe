// A host of MCP Apps: `host.mjs CHROMIUM [SCREENSHOT]`. It reads one line of JSON from stdin:
//
//   url         a server with the tools of the example `apps`
//   document    its UI resource, as another client has read it: `uri`, `html` and the header `policy`
//   probe       a document that tries to reach other origins, and its `policy`
//   undeclared  an origin that the policy does not allow
//
// The client, and the bridge between views and client, are the official SDKs. `interop/README.md`
// describes the rows and the output.

import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { isDeepStrictEqual } from "node:util";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  AppBridge,
  getToolUiResourceUri,
  isToolVisibilityAppOnly,
  RESOURCE_MIME_TYPE,
} from "@modelcontextprotocol/ext-apps/app-bridge";
import { chromium } from "playwright-core";

const [executablePath, screenshot] = process.argv.slice(2);
const { url, document: ours, probe, undeclared } = JSON.parse(await text(process.stdin));

// What the user is asked, and answers.
let asked = [];
let answer = { action: "decline" };

const client = new Client(
  { name: "host", version: "1.0.0" },
  {
    capabilities: {
      elicitation: { form: {} },
      extensions: { "io.modelcontextprotocol/ui": { mimeTypes: [RESOURCE_MIME_TYPE] } },
    },
    versionNegotiation: { mode: { pin: "2026-07-28" } },
  },
);
client.setRequestHandler("elicitation/create", async ({ params }) => {
  asked.push(params.message);
  return answer;
});
await client.connect(new StreamableHTTPClientTransport(new URL(url)));

const browser = await chromium.launch({
  executablePath,
  // Its sandbox does not run as root. It loads pages of the tests only, at loopback addresses.
  args: ["--no-sandbox", "--no-proxy-server"],
  timeout: 30_000,
});

function equal(what, got, wanted) {
  if (!isDeepStrictEqual(got, wanted)) {
    throw new Error(`${what}: ${JSON.stringify(got)}, not ${JSON.stringify(wanted)}`);
  }
}

// Serves one document on a port, and thus an origin, of its own.
async function serve(html, headers = {}) {
  const server = createServer((_, response) => {
    response.writeHead(200, { "Content-Type": "text/html; charset=utf-8", ...headers });
    response.end(html);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { origin: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

// The page of the host, with the view in a sandbox.
const HOST = (view, sandbox) => `<!doctype html><title>Host</title>
<style>iframe { border: 0; width: 480px; height: 320px; }</style>
<iframe sandbox="${sandbox}"></iframe>
<script>
  const frame = document.querySelector("iframe");
  window.addEventListener("message", ({ source, data }) => {
    if (source === frame.contentWindow) window.fromView(data);
  });
  window.toView = (message) => frame.contentWindow.postMessage(message, "*");
  frame.src = ${JSON.stringify(view)};
</script>`;

// Shows a document in a sandbox. Returns the page of the host, and the frame of the document.
async function show({ html, policy }, onMessage, sandbox = "allow-scripts") {
  const view = await serve(html, { "Content-Security-Policy": policy });
  // Only the policy of the host can keep the view from leading its own frame elsewhere.
  const frames = { "Content-Security-Policy": `frame-src ${view.origin}` };
  const host = await serve(HOST(view.origin, sandbox), frames);
  const page = await browser.newPage();
  page.setDefaultTimeout(20_000);
  await page.exposeFunction("fromView", onMessage);
  await page.goto(host.origin);
  await page.waitForSelector("iframe");
  const close = async () => {
    await page.close();
    view.close();
    host.close();
  };
  return { page, frame: page.frameLocator("iframe"), close };
}

// The transport between the bridge and the view.
class ViewTransport {
  // Messages that the view sends before the bridge is connected wait for it.
  early = [];

  receive(message) {
    if (this.onmessage === undefined) this.early.push(message);
    else this.onmessage(message);
  }

  async start() {
    for (const message of this.early.splice(0)) this.onmessage(message);
  }

  async send(message) {
    await this.page.evaluate((message) => window.toView(message), message);
  }

  async close() {
    this.onclose?.();
  }
}

async function list() {
  const { tools } = await client.listTools();
  equal("the tools", tools.map(({ name }) => name), ["orders", "cancel_order"]);
  equal("the UI resources", tools.map(getToolUiResourceUri), [ours.uri, ours.uri]);
  equal("the tools for views", tools.map(isToolVisibilityAppOnly), [false, true]);
  const { contents } = await client.readResource({ uri: ours.uri });
  equal("the contents", contents.length, 1);
  equal("the media type", contents[0].mimeType, RESOURCE_MIME_TYPE);
  equal("the HTML", contents[0].text, ours.html);
}

let view;
let sizes = 0;

async function shown() {
  const transport = new ViewTransport();
  view = await show(ours, (message) => transport.receive(message));
  transport.page = view.page;
  const capabilities = { serverTools: {}, logging: {} };
  const context = { hostContext: { theme: "dark", displayMode: "inline" } };
  const bridge = new AppBridge(client, { name: "host", version: "1.0.0" }, capabilities, context);
  bridge.addEventListener("sizechange", () => (sizes += 1));
  const initialized = new Promise((resolve) => bridge.addEventListener("initialized", resolve));
  await bridge.connect(transport);
  await initialized;
  await bridge.sendToolInput({ arguments: {} });
  await bridge.sendToolResult(await client.callTool({ name: "orders", arguments: {} }));
  await view.frame.getByText("Two chairs").waitFor();
  equal("the rows", await view.frame.locator("tbody tr").count(), 3);
  const scheme = await view.frame.locator("html").evaluate((html) => html.style.colorScheme);
  equal("the theme", scheme, "dark");
  view.bridge = bridge;
}

async function round() {
  asked = [];
  answer = { action: "accept", content: { reason: "<b>Too small</b>" } };
  await view.frame.locator("tbody tr").nth(1).getByRole("button").click();
  // The text of the user is not read as HTML.
  await view.frame.getByText("Cancelled: <b>Too small</b>").waitFor();
  equal("the question", asked, ["Cancel order 2 (Two chairs)?"]);
  equal("the buttons", await view.frame.getByRole("button").count(), 2);
  if (screenshot) await view.page.screenshot({ path: screenshot });
}

async function decline() {
  answer = { action: "decline" };
  await view.frame.locator("tbody tr").first().getByRole("button").click();
  await view.frame.getByText("declined").waitFor();
  equal("the buttons", await view.frame.getByRole("button").count(), 2);
}

async function teardown() {
  equal("the view reported its size", sizes > 0, true);
  equal("the response", await view.bridge.teardownResource({}), {});
  await view.close();
}

async function policy() {
  // The policy must block forms by itself.
  const sandbox = "allow-scripts allow-forms";
  const { page, frame, close } = await show(probe, () => {}, sandbox);
  const reached = await frame.locator("#reached").textContent();
  equal("the reached origins", reached, "declared");
  const submit = (reached) => {
    document.addEventListener("securitypolicyviolation", ({ effectiveDirective }) => {
      if (effectiveDirective === "form-action") reached.textContent = "the form is blocked";
    });
    document.forms[0].submit();
  };
  await frame.locator("#reached").evaluate(submit);
  await frame.getByText("the form is blocked").waitFor();
  await page.evaluate(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      window.refused = event.effectiveDirective;
    });
  });
  const leave = (_, url) => { window.location = url; };
  await frame.locator("#reached").evaluate(leave, `${undeclared}/navigation`);
  await page.waitForFunction(() => window.refused === "frame-src");
  await close();
}

for (const row of [list, shown, round, decline, teardown, policy]) {
  const outcome = await row().then(() => "ok", (error) => error.message.replaceAll("\n", " "));
  console.log(`${row.name}\t${outcome}`);
}
await browser.close();
// A row that failed may have left a server open.
process.exit();
