// Pictures of every page in both themes, at 1280 and 390 px:  node shots.mjs PROGRAM OUT [PAGE]
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { answered, ask, Hearth, launch, openPage, tools } from "./lib.mjs";

const [program, out, only] = process.argv.slice(2);
const { chromium } = await tools();
mkdirSync(out, { recursive: true });
const hearth = await new Hearth(program).start();
const browser = await launch(chromium);
const sizes = { 1280: { width: 1280, height: 800 }, 390: { width: 390, height: 844 } };
const pages = ["chat", "models", "playground", "metrics", "settings", "logs"].filter((p) => !only || p === only);
for (const theme of ["light", "dark"]) {
  for (const [name, viewport] of Object.entries(sizes)) {
    const page = await openPage(browser, hearth.url, {
      viewport,
      colorScheme: theme,
      isMobile: name === "390",
      hasTouch: name === "390",
    });
    await ask(page, "What is 12 plus 30?");
    await answered(page);
    await ask(page, "Write a haiku about fire.");
    await answered(page);
    for (const p of pages) {
      if (p !== "chat") await page.evaluate((to) => (location.hash = `#/${to}`), p);
      if (p === "logs") await page.locator(".log-line").first().waitFor();
      await page.waitForTimeout(p === "metrics" ? 3500 : 900);
      await page.screenshot({ path: join(out, `${p}-${theme}-${name}.png`) });
    }
    for (const w of page.wrong) console.log(`${theme} ${name}: ${w}`);
    await page.context().close();
  }
}
await browser.close();
await hearth.close();
