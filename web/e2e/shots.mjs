// Pictures of every page and of what pages can be in, in both themes, at 1280 and 390 px:  node shots.mjs PROGRAM OUT [PAGE]
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { begin, end, Fake, piece, put, says } from "./fake.mjs";
import { answered, ask, Hearth, launch, openPage, tools } from "./lib.mjs";

const [program, out, only] = process.argv.slice(2);
const { chromium } = await tools();
mkdirSync(out, { recursive: true });
const hearth = await new Hearth(program).start();
const fake = await new Fake(hearth.port).start();
const browser = await launch(chromium);
const sizes = { 1280: { width: 1280, height: 800 }, 390: { width: 390, height: 844 } };

const RICH = `## Sorting

A *stable* sort keeps equal elements in order; it takes $O(n \\log n)$ steps:

$$T(n) = 2\\,T(n/2) + \\Theta(n)$$

1. Split the list.
2. Sort each half, see [merge sort](https://example.org).

| n | steps |
|---|--:|
| 1,000 | 9,966 |
| 1,000,000 | 19,931,569 |

\`\`\`python
def merge(a, b):  # both are sorted
    while a and b:
        yield (a if a[0] <= b[0] else b).pop(0)
\`\`\`

> Ties go to the left half.
`;

const calls = (_body, a) => {
  begin(a);
  put(a, piece({ reasoning_content: "The product is needed first." }, 1));
  put(
    a,
    piece(
      { tool_calls: [{ index: 0, id: "c", function: { name: "calculator", arguments: '{"expression":"6*7"}' } }] },
      2,
    ),
  );
  end(a, 2);
  return true;
};

const go = (page, to) => page.evaluate((t) => (location.hash = `#/${t}`), to);
const click = (page, role, name) => page.getByRole(role, { name, exact: true }).click();
const tab = (at, name) => async (page) => {
  await go(page, at);
  await click(page, "tab", name);
};

/** What stands in the pictures, in the order in which one page is led through it. */
const states = {
  empty: async () => {},
  chat: async (page) => {
    fake.chat = null;
    await ask(page, "What is 12 plus 30?");
    await answered(page);
    await ask(page, "Write a haiku about fire.");
    await answered(page);
  },
  rich: async (page) => {
    fake.chat = says(RICH);
    await ask(page, "How fast is sorting?");
    await answered(page);
  },
  tool: async (page) => {
    fake.chat = calls;
    await ask(page, "What is six times seven?");
    await page.getByRole("button", { name: "Send result" }).waitFor();
  },
  setup: (page) => click(page, "button", "Setup of this chat"),
  palette: async (page) => {
    await click(page, "button", "Close setup");
    await page.keyboard.press("Control+k");
  },
  models: async (page) => {
    await page.keyboard.press("Escape");
    await go(page, "models");
  },
  playground: async (page) => {
    await go(page, "playground");
    await page.getByLabel("Prompt").press("Control+Enter");
    await page.locator(".token").first().waitFor();
  },
  embed: async (page) => {
    await click(page, "tab", "Embed");
    await click(page, "button", "Run");
    await page.getByText("3 vectors of").waitFor();
  },
  metrics: async (page) => {
    await go(page, "metrics");
    await page.waitForTimeout(2500);
  },
  settings: (page) => go(page, "settings"),
  server: tab("settings", "Server"),
  doctor: tab("settings", "Doctor"),
  logs: async (page) => {
    await go(page, "logs");
    await page.locator(".log-line").first().waitFor();
  },
};

for (const theme of ["light", "dark"]) {
  for (const [name, viewport] of Object.entries(sizes)) {
    const phone = name === "390";
    const page = await openPage(browser, fake.url, { viewport, colorScheme: theme, isMobile: phone, hasTouch: phone });
    for (const [state, lead] of Object.entries(states)) {
      await lead(page);
      await page.waitForTimeout(900);
      if (!only || only === state) await page.screenshot({ path: join(out, `${state}-${theme}-${name}.png`) });
    }
    for (const w of page.wrong) console.log(`${theme} ${name}: ${w}`);
    await page.context().close();
  }
}
await browser.close();
fake.close();
await hearth.close();
