// SPDX-License-Identifier: Apache-2.0
//
// Opens a page in Chromium and does what it is told, line by line on standard input; each is answered by a line of JSON.
//
//     wait EXPRESSION      until the expression is true in the page
//     value EXPRESSION     what it is
//     shot FILE            a picture of the whole page
//     errors               what the page complained of, and what it asked other hosts for
"use strict";

const readline = require("readline");
const { chromium } = require("playwright-core");

const WAIT_MS = 120000; // It only ends what hangs.

async function main(address, executablePath) {
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"], timeout: WAIT_MS });
  const page = await browser.newPage({ viewport: { width: 1200, height: 900 } });
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => {
    if (message.text().includes("Content Security Policy")) errors.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(address)) errors.push("asked for " + request.url());
  });
  const doings = {
    // Not by waitForFunction(), which the page's policy forbids: it lets no text become a program.
    wait: async (text) => {
      const deadline = Date.now() + WAIT_MS;
      while (!(await page.evaluate(text))) {
        if (Date.now() > deadline) throw new Error("it never came: " + text);
        await page.waitForTimeout(50);
      }
      return true;
    },
    value: (text) => page.evaluate(text),
    shot: (path) => page.screenshot({ path, fullPage: true }).then(() => true),
    errors: async () => errors,
  };
  await page.goto(address, { timeout: WAIT_MS });
  console.log(JSON.stringify(true));
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [word, rest] = [line.split(" ", 1)[0], line.slice(line.indexOf(" ") + 1)];
    console.log(JSON.stringify((await doings[word](rest)) ?? null));
  }
  await browser.close();
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
