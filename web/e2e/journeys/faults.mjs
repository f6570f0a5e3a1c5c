import { answered, ask, eventually, expect, Hearth } from "../lib.mjs";
import { begin, end, piece, put, says, slowly } from "../fake.mjs";

const words = Array.from({ length: 500 }, (_, i) => `word${i} `);
const last = (page) => page.locator(".message.assistant").last();
const prose = (page) => last(page).locator(".prose").textContent();

export const faultJourneys = {
  async "reload mid-stream"({ open, fake }) {
    const page = await open();
    fake.chat = slowly(words, 8);
    await ask(page, "Go");
    await page.getByText("word60").waitFor();
    const shown = await prose(page);
    await page.reload();
    await page.getByText("The page was closed while this was written.").waitFor();
    const kept = await prose(page);
    expect(kept.startsWith(shown.trim()), `lost ${shown.length - kept.length} characters`);
    fake.chat = says("and on.");
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByText("and on.").waitFor();
    return `${shown.length} characters shown, ${kept.length} kept`;
  },
  async "scroll up mid-stream"({ open, fake }) {
    const page = await open();
    fake.chat = slowly(words.map((w) => `${w}\n\n`), 8);
    await ask(page, "Go");
    await page.getByText("word80").waitFor();
    const box = page.locator(".conversation");
    await box.hover();
    await page.mouse.wheel(0, -300);
    await page.getByRole("button", { name: "Newest" }).waitFor();
    const at = await box.evaluate((b) => b.scrollTop);
    await page.getByText("word200").waitFor();
    const later = await box.evaluate((b) => b.scrollTop);
    expect(Math.abs(later - at) < 4, `scrolled from ${at} to ${later}`);
    await page.getByRole("button", { name: "Newest" }).click();
    await eventually(() => box.evaluate((b) => b.scrollHeight - b.scrollTop - b.clientHeight < 48), "at the end again");
  },
  async "end in sight when math comes late"({ open, fake }) {
    const page = await open(fake.url, { viewport: { width: 390, height: 700 } });
    fake.chat = says(`${"A line.\n\n".repeat(40)}$$\\sum_{i=1}^{n} \\frac{i^2}{2} = \\int_0^1 f$$\n`);
    await ask(page, "Go");
    await answered(page);
    await page.locator(".prose .katex").waitFor();
    const below = () => page.locator(".conversation").evaluate((b) => b.scrollHeight - b.scrollTop - b.clientHeight);
    await eventually(async () => (await below()) < 2, "the end is in sight");
  },
  async "cut stream"({ open, fake }) {
    const page = await open();
    fake.chat = slowly(words, 5, 40);
    await ask(page, "Go");
    await page.getByText("was cut").waitFor();
    await eventually(async () => (await prose(page)).includes("word39"), "a part that was sent is gone");
    expect(await page.getByRole("button", { name: "Continue" }).count(), "no way to go on");
    page.expectsErrors = true;
  },
  async "slow stream"({ open, fake }) {
    const page = await open();
    fake.chat = (_b, a) => {
      begin(a);
      a.write('event: prefill_progress\ndata: {"total":1000,"processed":250,"cached":100}\n\n');
      setTimeout(() => {
        put(a, piece({ content: "At last." }, 1));
        end(a);
      }, 4000);
      return true;
    };
    await ask(page, "Go");
    await page.getByText("Reading the prompt: 250 of 1000 tokens").waitFor();
    await page.getByText("100 cached").first().waitFor();
    await page.getByText("At last.").waitFor();
  },
  async "navigation keeps the stream"({ open, fake }) {
    const page = await open();
    fake.chat = slowly(words.slice(0, 120), 8);
    await ask(page, "Go");
    await page.getByText("word10").waitFor();
    await page.evaluate(() => (location.hash = "#/logs"));
    await page.getByRole("heading", { name: "Logs" }).waitFor();
    await page.goBack();
    await page.getByText("word119").waitFor();
    await answered(page);
    expect((await prose(page)).replace(/\s+/g, " ").trim() === words.slice(0, 120).join("").trim(), "words are missing");
  },
  async "server restart"({ open, program }) {
    const own = await new Hearth(program).start();
    try {
      const page = await open(own.url);
      page.expectsErrors = true;
      await page.getByRole("button", { name: "Setup of this chat" }).click();
      await page.getByRole("combobox", { name: "Form of the answer" }).selectOption("regex");
      await page.getByLabel("Schema, grammar or pattern").fill("([a-z]{2,6} ){500}");
      await ask(page, "Write");
      await eventually(async () => (await prose(page)).length > 200, "an answer grows");
      await own.end("SIGKILL");
      await page.getByText("was cut").waitFor();
      const shown = await prose(page);
      await page.getByText("The server does not answer").waitFor();
      await own.start();
      await eventually(async () => (await page.getByText("The server does not answer").count()) === 0, "the page finds it again", 20000);
      await page.getByRole("button", { name: "Continue" }).click();
      await eventually(async () => (await prose(page)).length > shown.length + 50, "it goes on");
      const now = await prose(page);
      expect(now.startsWith(shown), "a character that was shown is lost");
      return `${shown.length} characters before, ${now.length} after`;
    } finally {
      await own.close();
    }
  },
  async "full server (429)"({ open, fake }) {
    const page = await open();
    let n = 0;
    fake.chat = (b, a) => {
      if (n++) return says("Your turn.")(b, a);
      a.writeHead(429, { "Retry-After": "1", "Content-Type": "application/json" });
      a.end('{"error":{"message":"the key has used up its rate"}}');
      return true;
    };
    await ask(page, "Go");
    await page.getByText("asking again in 1 s").waitFor();
    await page.getByText("Your turn.").waitFor();
  },
  async "a refused request"({ open, fake }) {
    const page = await open();
    fake.chat = (_b, a) => {
      a.writeHead(400, { "Content-Type": "application/json", "X-Request-Id": "req-7" });
      a.end('{"error":{"message":"temperature: must be at most 2","param":"temperature"}}');
      return true;
    };
    await ask(page, "Go");
    await page.getByText("temperature: must be at most 2 [req-7]").waitFor();
    fake.chat = says("Now.");
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByText("Now.").waitFor();
  },
  async "server away"({ open, program }) {
    const own = await new Hearth(program).start();
    const page = await open(own.url);
    page.expectsErrors = true;
    await page.getByText("demo answers").waitFor();
    await own.end("SIGTERM");
    await page.getByText("The server does not answer").waitFor();
    await page.getByRole("textbox", { name: "Message" }).fill("Hello");
    expect(await page.getByRole("button", { name: "Send" }).isDisabled(), "it can be sent to nobody");
    await own.close();
  },
};
