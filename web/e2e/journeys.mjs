// What people do, in a real browser against the real server:  node journeys.mjs PROGRAM [--short] [NAME...]

import { Fake } from "./fake.mjs";
import { chatJourneys } from "./journeys/chat.mjs";
import { faultJourneys } from "./journeys/faults.mjs";
import { fileJourneys } from "./journeys/files.mjs";
import { pageJourneys } from "./journeys/pages.mjs";
import { serverJourneys } from "./journeys/servers.mjs";
import { Hearth, Journeys, launch, openPage, tools } from "./lib.mjs";

const [program, ...rest] = process.argv.slice(2);
const short = rest.includes("--short");
const only = rest.filter((r) => !r.startsWith("--"));
const { chromium } = await tools();
const hearth = await new Hearth(program).start();
const fake = await new Fake(hearth.port).start();
const browser = await launch(chromium);
const journeys = new Journeys();

// In the short form: the ways through every page, and the faults that would lose text.
const SHORT = [
  "first chat",
  "retry",
  "branch",
  "cut stream",
  "key asked",
  "server restart",
  "palette by keys",
  "config mistake",
  "hostile",
  "behind a prefix",
];
const all = { ...chatJourneys, ...fileJourneys, ...faultJourneys, ...pageJourneys, ...serverJourneys };
for (const [name, work] of Object.entries(all)) {
  if (only.length ? !only.some((o) => name.includes(o)) : short && !SHORT.includes(name)) continue;
  await journeys.run(name, async () => {
    fake.chat = null;
    fake.asked = [];
    fake.paths = [];
    const pages = [];
    const open = async (url = fake.url, options = {}) => {
      const page = await openPage(browser, url, options);
      pages.push(page);
      return page;
    };
    try {
      const note = await work({ open, fake, hearth, program, browser });
      for (const p of pages) if (p.wrong.length && !p.expectsErrors) throw new Error(p.wrong[0]);
      return note;
    } finally {
      for (const p of pages) await p.context().close();
    }
  });
}
await browser.close();
fake.close();
await hearth.close();
console.log(`${journeys.n} journeys, ${journeys.failed} failed`);
process.exit(journeys.failed ? 1 : 0);
