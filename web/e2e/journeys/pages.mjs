import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { expect, eventually } from "../lib.mjs";

const go = (page, to) => page.evaluate((t) => (location.hash = `#/${t}`), to);

export const pageJourneys = {
  async "load, unload"({ open, hearth }) {
    const page = await open(hearth.url);
    await go(page, "models");
    const load = page.getByRole("button", { name: "Load demo", exact: true });
    const unload = page.getByRole("button", { name: "Unload demo" });
    await load.or(unload).waitFor();
    if (await unload.count()) await unload.click();
    await load.click();
    await unload.waitFor();
    await page.getByText("It fits.").waitFor();
  },
  async fit({ open, hearth }) {
    const page = await open(hearth.url);
    await go(page, "models");
    await page.getByLabel("At a context of").fill("512");
    await page.getByText("at 512 tokens").waitFor();
    const cache = page.locator(".facts dd", { hasText: "at 512 tokens" });
    const exact = await cache.textContent();
    await page.getByLabel("Cache in").first().selectOption("tq4");
    await eventually(async () => (await cache.textContent()) !== exact, "smaller pages");
  },
  async "defaults of a model"({ open, hearth }) {
    const page = await open(hearth.url);
    await go(page, "models");
    const load = page.getByRole("button", { name: "Load demo", exact: true });
    const unload = page.getByRole("button", { name: "Unload demo" });
    await load.or(unload).waitFor();
    if (await load.count()) await load.click();
    await page.getByText("Defaults", { exact: true }).click();
    const form = page.getByRole("form", { name: "Defaults of demo" });
    await form.getByLabel("System prompt").fill("Be calm.");
    await form.getByLabel("Temperature").fill("0.3");
    await form.getByLabel("Cache in").selectOption("q8_0");
    await form.getByLabel("Save as").fill("calm");
    await form.getByRole("button", { name: "Save" }).click();
    await page.getByText("Defaults of calm saved").waitFor();
    const shown = await page.evaluate(() =>
      fetch("/api/show", { method: "POST", body: JSON.stringify({ model: "calm" }) }).then((a) => a.json()),
    );
    expect(shown.system === "Be calm." && /temperature\s+0\.3/.test(shown.parameters), JSON.stringify(shown));
    expect(/cache_type\s+q8_0/.test(shown.parameters), shown.parameters);
    await page.evaluate(() => fetch("/api/delete", { method: "DELETE", body: JSON.stringify({ model: "calm" }) }));
  },
  async "a name that cannot be pulled"({ open, hearth }) {
    const page = await open(hearth.url);
    await go(page, "models");
    await page.getByLabel("Name of a model").fill("./nothing.gguf");
    await page.getByRole("button", { name: "Pull", exact: true }).first().click();
    await page.getByRole("alert").waitFor();
  },
  async completion({ open, hearth }) {
    const page = await open(hearth.url);
    await go(page, "playground");
    await page.getByLabel("Prompt").press("Control+Enter");
    await page.locator(".token").first().waitFor();
  },
  async embeddings({ open, hearth }) {
    const page = await open(hearth.url);
    await go(page, "playground");
    await page.getByRole("tab", { name: "Embed" }).click();
    await page.getByRole("button", { name: "Run" }).click();
    await page.getByText("3 vectors of").waitFor();
    expect((await page.locator(".matrix td").first().textContent()) === "1.000", "a text is not like itself");
  },
  async "structured, and a wrong schema"({ open, hearth }) {
    const page = await open(hearth.url);
    await go(page, "playground");
    await page.getByRole("tab", { name: "Structured" }).click();
    await page.getByRole("button", { name: "Run" }).click();
    await page.locator(".output pre").first().waitFor();
    expect("sum" in JSON.parse(await page.locator(".output pre").first().textContent()), "not the schema");
    await page.getByLabel("JSON schema").fill('{"type": "nonsense"}');
    await page.getByRole("button", { name: "Run" }).click();
    await page.getByRole("alert").waitFor();
    expect((await page.getByLabel("JSON schema").getAttribute("aria-invalid")) === "true", "the field is not marked");
  },
  async tokens({ open, hearth }) {
    const page = await open(hearth.url);
    await go(page, "playground");
    await page.getByRole("tab", { name: "Tokens" }).click();
    await page.getByRole("button", { name: "Run" }).click();
    await page.getByText(/\d+ tokens/).first().waitFor();
    const text = (await page.locator(".output .token").allTextContents()).join("");
    expect(text.replace(/\s/g, "").includes("12plus30"), `the pieces are '${text}'`);
  },
  async metrics({ open, hearth }) {
    const page = await open(hearth.url);
    await go(page, "metrics");
    await page.locator(".plot canvas").nth(7).waitFor();
    await eventually(async () => !(await page.locator(".figures-row dd").nth(5).textContent()).startsWith("?"), "figures");
  },
  async "palette by keys"({ open, hearth }) {
    const page = await open(hearth.url);
    await page.getByText("demo answers").waitFor();
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: "Command" }).waitFor();
    await page.keyboard.type("theme dark");
    await page.keyboard.press("Enter");
    await eventually(() => page.evaluate(() => document.documentElement.dataset.theme === "dark"), "dark");
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: "Command" }).waitFor();
    await page.keyboard.type("logs");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Logs" }).waitFor();
    await page.keyboard.press("g");
    await page.keyboard.press("m");
    await page.getByRole("heading", { name: "Models", exact: true }).waitFor();
    await page.keyboard.press("p");
    await eventually(() => page.evaluate(() => document.activeElement?.getAttribute("aria-label") === "Name of a model"), "the field");
    await page.evaluate(() => document.activeElement.blur());
    // What is loaded may still change by itself, and the page hears of it a moment later.
    const load = page.locator("tr.chosen .load:enabled");
    let before;
    await eventually(async () => {
      const name = (await load.getAttribute("aria-label")).split(" ")[1];
      const { models } = await (await fetch(`${hearth.url}/api/ps`)).json();
      before = await load.textContent();
      return before === (models.some((m) => m.name.split(":")[0] === name.split(":")[0]) ? "Unload" : "Load");
    }, "the page and the server agree");
    await page.keyboard.press("l");
    await eventually(async () => (await load.textContent()) !== before, "loaded or unloaded");
    await page.keyboard.press("g");
    await page.keyboard.press("g");
    await page.getByRole("heading", { name: "Metrics" }).waitFor();
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keys" }).waitFor();
    await page.keyboard.press("Escape");
    await eventually(async () => (await page.locator("dialog[open]").count()) === 0, "closed");
  },
  async "log filter"({ open, hearth }) {
    const page = await open(hearth.url);
    await fetch(`${hearth.url}no/such/heron`);
    await fetch(`${hearth.url}v1/models`);
    await go(page, "logs");
    await page.getByText("/v1/models").first().waitFor();
    await page.getByLabel("Text").fill("unknown 404");
    await eventually(async () => (await page.locator(".log-line").count()) >= 1 && (await page.getByText("/v1/models").count()) === 0, "filtered");
    await page.getByLabel("Level").selectOption("error");
    await page.getByText("No line has this level").waitFor();
    await page.getByLabel("Level").selectOption("debug");
    await page.locator(".log-line").first().click();
    await page.locator(".log-whole", { hasText: "404" }).waitFor();
    await page.keyboard.press("Escape");
    await eventually(async () => (await page.locator(".log-whole").count()) === 0, "closed");
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("button", { name: "Resume" }).waitFor();
  },
  async "config mistake"({ open, hearth }) {
    const page = await open(hearth.url);
    await go(page, "settings");
    await page.getByRole("tab", { name: "Check" }).click();
    await page.getByLabel("server.yaml").fill("transport:\n  prot: 80\n");
    await page.getByRole("button", { name: "Check" }).click();
    await page.getByText("did you mean port").waitFor();
    await page.getByText("line 2").waitFor();
    await page.getByLabel("server.yaml").fill("transport:\n  port: 80\n");
    await page.getByRole("button", { name: "Check" }).click();
    await page.getByText("In order.").waitFor();
  },
  async "setting changed"({ open, hearth }) {
    const page = await open(hearth.url);
    await go(page, "settings");
    await page.getByRole("tab", { name: "Server" }).click();
    await page.getByLabel("Filter settings").fill("keep_alive");
    await page.getByLabel("Change models.keep_alive").click();
    await page.getByLabel("Value of models.keep_alive").fill("soon");
    await page.getByRole("button", { name: "Write" }).click();
    await page.getByText("This takes the server's token").waitFor();
    await page.getByRole("textbox", { name: "Token" }).fill(readFileSync(join(hearth.home, "hearth/token"), "utf8").trim());
    await page.getByRole("button", { name: "Use token" }).click();
    await page.getByRole("alert").filter({ hasText: "keep_alive" }).waitFor();
    await page.getByLabel("Value of models.keep_alive").fill("1h");
    await page.getByRole("button", { name: "Write" }).click();
    await page.getByText("holds after a restart").waitFor();
    await page.getByText("One change waits for a restart").waitFor();
    expect(readFileSync(join(hearth.home, "hearth/server.yaml"), "utf8") === "models:\n  keep_alive: 1h\n", "another file");
    await page.getByLabel("Change models.keep_alive").click();
    await page.getByRole("button", { name: "Take out of the file" }).click();
    await eventually(async () => (await page.getByText("waits for a restart").count()) === 0, "nothing waits any more");
    rmSync(join(hearth.home, "hearth/server.yaml"));
  },
  async "server settings and doctor"({ open, hearth }) {
    const page = await open(hearth.url);
    await go(page, "settings");
    await page.getByRole("tab", { name: "Server" }).click();
    await page.getByLabel("only what was set").check();
    await page.getByText("--port").waitFor();
    await page.getByRole("tab", { name: "Doctor" }).click();
    await page.locator(".findings li").nth(4).waitFor();
  },
  async "on a phone"({ open, fake }) {
    const page = await open(fake.url, { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true });
    await page.getByText("demo answers").waitFor();
    await page.getByRole("button", { name: "List of chats" }).tap();
    await page.getByText("No chats yet").waitFor();
    await page.getByRole("button", { name: "List of chats" }).tap();
    for (const p of ["models", "playground", "metrics", "settings", "logs", "chat"]) {
      await page.locator(`.rail a[href="#/${p}"]`).tap();
      await page.waitForTimeout(250);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      expect(wide <= 0, `${p} is ${wide} px too wide`);
    }
  },
};
