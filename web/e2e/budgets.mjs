// Measures and prints the budgets:  node budgets.mjs PROGRAM
//   first load at most 300 kB, first paint within 300 ms; no frame over 50 ms while 10,000 tokens stream at 200 a second,
//   and while a conversation of 500 messages is opened and scrolled. Frames come from chromium's trace.
// HEARTH_BUDGET_TOKENS streams fewer of them.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { begin, end, Fake, piece, put } from "./fake.mjs";
import { answered, ask, Hearth, launch, openPage, root, tools } from "./lib.mjs";

const TOKENS = Number(process.env.HEARTH_BUDGET_TOKENS ?? 10000);
const { chromium } = await tools();
const hearth = await new Hearth(process.argv[2]).start();
const fake = await new Fake(hearth.port).start();
const browser = await launch(chromium);
let failed = 0;
const report = (what, value, limit, unit) => {
  const ok = value <= limit;
  if (!ok) failed++;
  console.log(
    `${ok ? "check ok" : "check FAILED"} ${what}: ${value.toFixed(unit === "kB" ? 0 : 1)} ${unit} (limit ${limit})`,
  );
};

/** The longest tasks of the page's main thread, and the longest gap between two frames, in ms. */
async function traced(page, work) {
  const client = await page.context().newCDPSession(page);
  const events = [];
  client.on("Tracing.dataCollected", (d) => events.push(...d.value));
  await client.send("Tracing.start", {
    categories: "toplevel,disabled-by-default-devtools.timeline",
    transferMode: "ReportEvents",
  });
  await page.evaluate(() => {
    window.__frames = [];
    const tick = (t) => {
      window.__frames.push(t);
      window.__ticking = requestAnimationFrame(tick);
    };
    window.__ticking = requestAnimationFrame(tick);
  });
  await work();
  const gaps = await page.evaluate(() => {
    cancelAnimationFrame(window.__ticking);
    return window.__frames.slice(1).map((t, i) => t - window.__frames[i]);
  });
  const over = new Promise((tell) => client.once("Tracing.tracingComplete", tell));
  await client.send("Tracing.end");
  await over;
  const main = events.find((e) => e.name === "thread_name" && e.args?.name === "CrRendererMain");
  const tasks = events.filter(
    (e) => e.ph === "X" && e.name === "RunTask" && (!main || (e.pid === main.pid && e.tid === main.tid)),
  );
  const own = tasks.map((e) => (e.tdur ?? e.dur) / 1000).sort((a, b) => b - a);
  gaps.sort((a, b) => a - b);
  return {
    tasks: own.slice(0, 5),
    gaps,
    p99: gaps[Math.floor(gaps.length * 0.99)] ?? 0,
    max: gaps.at(-1) ?? 0,
    median: gaps[gaps.length >> 1] ?? 0,
  };
}

report("initial load", JSON.parse(readFileSync(join(root, "web/dist/initial.json"), "utf8")).bytes / 1000, 300, "kB");

{
  const times = [];
  for (let i = 0; i < 5; i++) {
    const page = await openPage(browser, hearth.url);
    await page.locator(".welcome").waitFor();
    times.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 9999));
    await page.context().close();
  }
  report("first paint (median of 5)", times.sort((a, b) => a - b)[2], 300, "ms");
}

const LINES = [
  "A paragraph with *some* words, `code` and a [link](https://example.org/x). ",
  "\n\n- an item of a list\n- and another one\n\n",
  "\n\n```python\ndef f(x):\n    return x + 1\n```\n\n",
  "## A heading\n\n",
  "| a | b |\n|---|---|\n| 1 | 2 |\n\n",
];
const source = Array.from({ length: 20000 }, (_, i) => LINES[i % 7 < 3 ? 0 : i % LINES.length]).join("");
const tokens = source.match(/[\s\S]{1,4}/g);

{
  const page = await openPage(browser, fake.url);
  fake.chat = (_b, a) => {
    begin(a);
    let sent = 0;
    const from = Date.now();
    const t = setInterval(() => {
      const due = Math.min(TOKENS, Math.floor(((Date.now() - from) / 1000) * 200));
      for (; sent < due; sent++) put(a, piece({ content: tokens[sent] }, sent + 1));
      if (sent >= TOKENS) {
        clearInterval(t);
        end(a, sent);
      }
    }, 5);
    a.on("close", () => clearInterval(t));
    return true;
  };
  const f = await traced(page, async () => {
    await ask(page, "Write a lot");
    await page.locator(".message.assistant .actions").waitFor({ timeout: 120000 });
  });
  console.log(
    `  ${TOKENS} tokens at 200/s: longest tasks ${f.tasks.map((t) => t.toFixed(1)).join(", ")} ms; frames median ${f.median.toFixed(1)}, p99 ${f.p99.toFixed(1)}, longest ${f.max.toFixed(1)} ms`,
  );
  report("longest task while streaming", f.tasks[0] ?? 0, 50, "ms");
  await page.context().close();
}

{
  const page = await openPage(browser, fake.url);
  const messages = Array.from({ length: 500 }, (_, i) => ({
    id: `m${i}`,
    parent: i ? `m${i - 1}` : null,
    role: i % 2 ? "assistant" : "user",
    created: i + 1,
    content: i % 2 ? `${LINES.slice(0, 3).join("")}Answer ${i}.` : `Question ${i}?`,
  }));
  const file = {
    format: "hearth-chats",
    version: 1,
    chats: [{ id: "long", title: "Long", model: "demo", settings: {}, head: "m499", messages }],
  };
  await page.evaluate(() => (location.hash = "#/settings"));
  await page.getByRole("tab", { name: "Chats" }).click();
  await page
    .getByLabel("Import chats")
    .setInputFiles({ name: "a.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(file)) });
  await page.getByText("1 chats imported").waitFor();
  const opened = await page.evaluate(async () => {
    const from = performance.now();
    location.hash = "#/chat/long";
    while (!document.querySelector('[data-id="m499"]')) await new Promise((t) => requestAnimationFrame(t));
    return performance.now() - from;
  });
  report("500 messages open", opened, 300, "ms");
  await page.locator(".conversation").hover();
  const f = await traced(page, async () => {
    for (let i = 0; i < 60; i++) {
      await page.mouse.wheel(0, -400);
      await page.waitForTimeout(16);
    }
    fake.chat = (_b, a) => {
      begin(a);
      for (let i = 0; i < 200; i++) put(a, piece({ content: tokens[i] }, i + 1));
      end(a);
      return true;
    };
    await ask(page, "More");
    await answered(page);
  });
  console.log(
    `  500 messages: longest tasks ${f.tasks.map((t) => t.toFixed(1)).join(", ")} ms; frames median ${f.median.toFixed(1)}, p99 ${f.p99.toFixed(1)}, longest ${f.max.toFixed(1)} ms`,
  );
  report("longest task of 500 messages", f.tasks[0] ?? 0, 50, "ms");
  await page.context().close();
}
await browser.close();
fake.close();
await hearth.close();
process.exit(failed ? 1 : 0);
