// axe on every page, in both themes:  node axe.mjs PROGRAM
import { createRequire } from "node:module";
import { Fake, says } from "./fake.mjs";
import { answered, ask, Hearth, launch, openPage, tools } from "./lib.mjs";

const RICH = `## Heading

Some *words*, \`code\`, $x^2$ and a [link](https://example.org).

| a | b |
|---|--:|
| 1 | 2 |

\`\`\`python
# a comment
def f(x): return "s" + str(1)
\`\`\`
`;
const { chromium } = await tools();
const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const hearth = await new Hearth(process.argv[2]).start();
const fake = await new Fake(hearth.port).start();
fake.chat = says(RICH);
const browser = await launch(chromium);
let bad = 0;
let pages = 0;

async function look(page, name) {
  const found = await page.evaluate(async () => {
    const r = await window.axe.run(document, { resultTypes: ["violations"] });
    return r.violations.map((v) => `${v.impact} ${v.id}: ${v.nodes.length} (${v.nodes[0].html.slice(0, 120)})`);
  });
  pages++;
  const grave = found.filter((f) => /^(serious|critical)/.test(f));
  for (const f of found) console.log(`${name}: ${f}`);
  bad += grave.length;
}

for (const colorScheme of ["light", "dark"]) {
  // The checker is not one of the page's scripts: it goes in past the CSP, which stays for the page itself.
  const page = await openPage(browser, fake.url, { colorScheme, bypassCSP: true });
  await page.addScriptTag({ path: axe });
  await look(page, `empty chat ${colorScheme}`);
  await ask(page, "Show me everything");
  await answered(page);
  await page.waitForTimeout(400);
  await page.getByRole("button", { name: "Setup of this chat" }).click();
  await look(page, `chat ${colorScheme}`);
  for (const p of ["models", "playground", "metrics", "settings", "logs"]) {
    await page.evaluate((to) => (location.hash = `#/${to}`), p);
    await page.waitForTimeout(700);
    await look(page, `${p} ${colorScheme}`);
  }
  for (const tab of ["Key", "Chats", "Server", "Check", "Doctor"]) {
    await page.evaluate(() => (location.hash = "#/settings"));
    await page.getByRole("tab", { name: tab, exact: true }).click();
    await page.waitForTimeout(300);
    await look(page, `settings ${tab} ${colorScheme}`);
  }
  await page.keyboard.press("Control+k");
  await page.waitForTimeout(200);
  await look(page, `palette ${colorScheme}`);
  await page.context().close();
}
await browser.close();
fake.close();
await hearth.close();
console.log(`${bad ? "check FAILED" : "check ok"} axe: ${pages} states, ${bad} serious findings`);
process.exit(bad ? 1 : 0);
