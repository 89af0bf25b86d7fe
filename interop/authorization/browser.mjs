// A user with a browser: `browser.mjs CHROMIUM`. For each line of stdin, the URL of an authorization
// page, it logs in as `alice`, consents, and prints the text of the last page, or `error REASON`.
// The first line it prints is `ready`. It ends when its stdin ends.

import { createInterface } from "node:readline";

import { chromium } from "playwright-core";

const options = {
  executablePath: process.argv[2],
  // Its sandbox does not run as root. It loads pages of the tests only, at loopback addresses.
  args: ["--no-sandbox", "--no-proxy-server"],
  timeout: 30_000,
};

async function logIn(browser, url) {
  // A context of its own has no cookies of another login.
  const context = await browser.newContext();
  context.setDefaultTimeout(20_000);
  try {
    const page = await context.newPage();
    await page.goto(url);
    await page.fill('input[name="login"]', "alice");
    await page.fill('input[name="password"]', "password");
    await page.click('button[type="submit"]');
    await page.waitForSelector('input[name="prompt"][value="consent"]', { state: "attached" });
    await page.click('button[type="submit"]');
    await page.waitForURL((url) => url.pathname === "/callback");
    return (await page.textContent("body")).trim();
  } finally {
    await context.close();
  }
}

const browser = await chromium.launch(options);
console.log("ready");
for await (const url of createInterface({ input: process.stdin })) {
  const said = await logIn(browser, url).catch((error) => `error ${error.message}`);
  console.log(said.replaceAll("\n", " "));
}
await browser.close();
