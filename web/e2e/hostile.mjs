// Hostile answers stay text:  node hostile.mjs PROGRAM [--without-sanitizer]
//
// Every text is streamed as an answer and looked at: no script ran, no handler or foreign address is in the page, no
// request left, no report of the CSP. With --without-sanitizer the pages are built with hostile/unsafe.tsx in place of
// src/md/safe.ts and served without the CSP: the same look must then find something, or it sees nothing at all.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { begin, end, Fake, piece, put } from "./fake.mjs";
import { hostile } from "./hostile/corpus.mjs";
import { answered, ask, Hearth, here, launch, openPage, tools } from "./lib.mjs";

const [program, flag] = process.argv.slice(2);
const without = flag === "--without-sanitizer";
const { chromium } = await tools();
const hearth = await new Hearth(program).start();
const fake = new Fake(hearth.port);

let dist;
if (without) {
  dist = mkdtempSync(join(tmpdir(), "hearth-unsafe-"));
  execFileSync("node", ["build.mjs", "--out", dist, "--replace", `md/safe=${join(here, "hostile/unsafe.tsx")}`], {
    cwd: join(here, ".."),
  });
  const take = fake.take.bind(fake);
  fake.take = (q, a) => {
    const name = q.url === "/" ? "index.html" : q.url.startsWith("/assets/") ? q.url.slice(8) : "";
    if (!name) return take(q, a);
    let data = readFileSync(join(dist, name));
    if (data[0] === 0x1f && data[1] === 0x8b) data = gunzipSync(data);
    const type = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml" }[
      name.split(".").pop()
    ];
    a.writeHead(200, { "Content-Type": type ?? "application/octet-stream" });
    a.end(data);
  };
}
await fake.start();
const browser = await launch(chromium);
const page = await openPage(browser, fake.url);
await page.route(/evil\.example/, (r) => r.abort());
await page.evaluate(() => {
  window.__reports = [];
  document.addEventListener("securitypolicyviolation", (e) =>
    window.__reports.push(`${e.violatedDirective} ${e.blockedURI}`),
  );
});
fake.chat = (body, a) => {
  const text = hostile[Number(body.messages.at(-1).content)];
  begin(a);
  for (let i = 0; i < text.length; i += 2000) put(a, piece({ content: text.slice(i, i + 2000) }, i + 1));
  end(a);
  return true;
};

/** What must not be in a conversation. */
const look = () => {
  const found = [];
  if (window.__owned) found.push("a script ran");
  delete window.__owned;
  const box = document.querySelector(".conversation");
  const allowed =
    /^(A|ARTICLE|DIV|P|SPAN|STRONG|EM|DEL|CODE|PRE|BR|HR|UL|OL|LI|H[3-6]|BLOCKQUOTE|TABLE|THEAD|TBODY|TR|TH|TD|FIGURE|FIGCAPTION|BUTTON|DETAILS|SUMMARY|DL|DT|DD|SELECT|OPTION|svg|path|math|semantics|mrow|m[a-z]+|annotation|line)$/;
  for (const e of box.querySelectorAll("*")) {
    if (!allowed.test(e.tagName)) found.push(`<${e.tagName}>`);
    for (const a of e.attributes) {
      if (/^on/i.test(a.name)) found.push(`${e.tagName} has ${a.name}`);
      if (
        /^(href|src|action|data|srcdoc|ping|background|xlink:href)$/i.test(a.name) &&
        !/^(https?:|mailto:)/.test(a.value)
      )
        found.push(`${a.name}=${a.value.slice(0, 60)}`);
    }
    if (e.tagName === "A" && e.target !== "_blank") found.push("a link that leaves the page");
  }
  if (!document.querySelector(".composer") || getComputedStyle(document.body).display === "none")
    found.push("the page is gone");
  found.push(...window.__reports.splice(0).map((r) => `CSP: ${r}`));
  return found;
};

let bad = 0;
for (let i = 0; i < hostile.length; i++) {
  if (i % 20 === 0) {
    await page.evaluate(() => (location.hash = "#/chat"));
    await page.getByText("What would you like to know?").waitFor();
  }
  let found;
  try {
    await ask(page, String(i));
    await answered(page);
    await page.evaluate(() => new Promise((tell) => requestAnimationFrame(() => requestAnimationFrame(tell))));
    found = await page.evaluate(look);
  } catch (why) {
    found = [`the page does not answer: ${why.message.split("\n")[0]}`];
  }
  found.push(...page.wrong.splice(0));
  if (found.length) {
    bad++;
    if (bad <= 10)
      console.log(
        `${JSON.stringify(hostile[i].slice(0, 80))}: ${[...new Set(found)].slice(0, 3).join("; ").slice(0, 300)}`,
      );
    if (without && bad > 20) break;
    if (without)
      await page
        .goto(fake.url)
        .then(() => page.evaluate(() => (window.__reports = [])))
        .catch(() => {});
  }
}
await browser.close();
fake.close();
await hearth.close();
if (dist) rmSync(dist, { recursive: true, force: true });
console.log(
  `${hostile.length} hostile answers${without ? " without the sanitizer" : ""}, ${bad}${without && bad > 20 ? " or more" : ""} did something`,
);
if (without)
  console.log(
    bad
      ? "check ok hostile answers are caught without the sanitizer"
      : "check FAILED nothing is caught without the sanitizer",
  );
else console.log(bad ? "check FAILED hostile answers" : "check ok hostile answers");
process.exit((without ? !bad : bad) ? 1 : 0);
