import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { answered, ask, eventually, expect, Hearth, root, writeAdapter } from "../lib.mjs";
import { Fake } from "../fake.mjs";

async function withKey(program, work) {
  const own = new Hearth(program);
  writeFileSync(join(own.home, "keys"), "anna:correct-horse-battery-staple\n");
  await own.start(["--api-key-file", join(own.home, "keys")]);
  try {
    return await work(own);
  } finally {
    await own.close();
  }
}

export const serverJourneys = {
  "key asked": ({ open, program }) =>
    withKey(program, async (own) => {
      const page = await open(own.url);
      await page.getByText("This server wants a key").waitFor();
      await page.getByRole("textbox", { name: "Key" }).fill("correct-horse-battery-staple");
      await page.keyboard.press("Enter");
      await page.getByText("demo answers").waitFor();
      await ask(page, "What is 12 plus 30?");
      await page.getByText("12 plus 30 is 42.").waitFor();
      await answered(page);
      expect(await page.evaluate(() => !localStorage.getItem("hearth.key") && !location.href.includes("correct")), "the key lies about");
    }),
  "wrong key": ({ open, program }) =>
    withKey(program, async (own) => {
      const page = await open(own.url);
      await page.getByRole("textbox", { name: "Key" }).fill("wrong");
      await page.keyboard.press("Enter");
      await page.getByText("That key is not known here").waitFor();
      await page.getByRole("textbox", { name: "Key" }).fill("correct-horse-battery-staple");
      await page.getByRole("button", { name: "Use key" }).click();
      await page.getByText("demo answers").waitFor();
    }),
  async "pull, reload"({ open, program }) {
    const slow = createServer((q, a) => {
      if (q.url.includes("/manifests/")) {
        const layer = { mediaType: "application/vnd.ollama.image.model", digest: `sha256:${"a".repeat(64)}`, size: 50_000_000 };
        const config = { mediaType: "application/vnd.docker.container.image.v1+json", digest: `sha256:${"b".repeat(64)}`, size: 100 };
        a.end(JSON.stringify({ schemaVersion: 2, mediaType: "application/vnd.docker.distribution.manifest.v2+json", config, layers: [layer] }));
        return;
      }
      a.writeHead(200, { "Content-Length": 50_000_000 });
      const t = setInterval(() => a.write(Buffer.alloc(200_000)), 50);
      a.on("close", () => clearInterval(t));
    });
    await new Promise((tell) => slow.listen(0, "127.0.0.1", tell));
    const own = await new Hearth(program).start([], { HEARTH_OLLAMA_REGISTRY: `http://127.0.0.1:${slow.address().port}` });
    try {
      const page = await open(`${own.url}#/models`);
      await page.getByLabel("Name of a model").fill("tiny-heron:1b");
      await page.getByRole("button", { name: "Pull", exact: true }).first().click();
      await page.locator(".pulls li", { hasText: "tiny-heron" }).waitFor();
      await page.reload();
      await page.locator(".pulls li", { hasText: "tiny-heron" }).waitFor();
      await eventually(async () => /[1-9]\d*%/.test(await page.locator(".pulls").textContent()), "progress");
      await page.getByRole("button", { name: "Stop", exact: true }).click();
      await page.getByRole("button", { name: "Dismiss", exact: true }).first().click();
      await eventually(async () => (await page.locator(".pulls li").count()) === 0, "dismissed");
    } finally {
      await own.close();
      slow.closeAllConnections();
      slow.close();
    }
  },
  async adapters({ open, program }) {
    const own = new Hearth(program);
    own.run("create", "heron", join(root, "models/demo/demo.gguf"));
    writeAdapter(join(own.home, "warm"));
    own.run("adapter", "add", "heron", join(own.home, "warm"), "--name", "warm");
    await own.start();
    const fake = await new Fake(own.port).start();
    try {
      const page = await open(`${fake.url}#/models`);
      await page.getByRole("button", { name: "heron", exact: true }).click();
      await page.getByLabel("Weight of warm").fill("0.5");
      await page.getByLabel("Weight of warm").press("Enter");
      await page.getByText("Weights of the adapters saved").waitFor();
      const [weight] = await (await fetch(`${own.url}lora-adapters?model=heron`)).json();
      expect(weight.scale === 0.5, JSON.stringify(weight));
      await page.getByRole("button", { name: "Chat with heron+warm" }).click();
      await ask(page, "What is 12 plus 30?");
      await page.getByText("12 plus 30 is 42.").waitFor();
      await answered(page);
      expect(fake.asked.at(-1).model === "heron+warm" && !fake.asked.at(-1).lora, JSON.stringify(fake.asked.at(-1)));
      await page.getByRole("button", { name: "Setup of this chat" }).click();
      await page.getByRole("spinbutton", { name: "warm" }).fill("0.25");
      await ask(page, "What is 12 plus 30?");
      await answered(page);
      const { model, lora } = fake.asked.at(-1);
      expect(model === "heron" && JSON.stringify(lora) === '[{"name":"warm","scale":0.25}]', `${model} ${JSON.stringify(lora)}`);
      await eventually(async () => (await page.getByText("12 plus 30 is 42.").count()) === 2, "an answer");
    } finally {
      fake.close();
      await own.close();
    }
  },
  async "hub search"({ open, program }) {
    const asked = [];
    const hub = createServer((q, a) => {
      asked.push(q.url);
      a.setHeader("Content-Type", "application/json");
      if (q.url.includes("broken")) a.writeHead(500).end("{}");
      else a.end(JSON.stringify([{ id: "herons/tiny-heron-gguf", downloads: 4242, likes: 3, tags: ["gguf"], lastModified: "2026-01-31T00:00:00Z" }]));
    });
    await new Promise((tell) => hub.listen(0, "127.0.0.1", tell));
    const own = await new Hearth(program).start([], { HF_ENDPOINT: `http://127.0.0.1:${hub.address().port}` });
    try {
      const page = await open(`${own.url}#/models`);
      await page.getByText("Hugging Face").waitFor();
      expect(asked.length === 0, "the hub was asked by itself");
      await page.getByLabel("Words for the hub").fill("tiny heron");
      await page.keyboard.press("Enter");
      await page.getByText("herons/tiny-heron-gguf").waitFor();
      expect(asked[0].includes("search=tiny%20heron"), asked[0]);
      await page.getByRole("button", { name: "Pull herons/tiny-heron-gguf" }).click();
      await page.locator(".pulls li", { hasText: "tiny-heron" }).waitFor();
      await page.getByLabel("Words for the hub").fill("broken");
      await page.keyboard.press("Enter");
      await page.getByRole("alert").waitFor();
    } finally {
      await own.close();
      hub.closeAllConnections();
      hub.close();
    }
  },
  async "chats on the server, two browsers"({ open, program }) {
    const own = await new Hearth(program).start([], { HEARTH_CHATS_BYTES: "1MiB" });
    const share = async (page) => {
      await page.evaluate(() => (location.hash = "#/settings"));
      await page.getByRole("tab", { name: "Chats" }).click();
      await page.getByLabel("Keep them on the server").check();
      await page.evaluate(() => (location.hash = "#/chat"));
    };
    const stored = async () => (await (await fetch(`${own.url}v1/chats`)).json()).data;
    const look = (page) => page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
    try {
      const one = await open(own.url);
      await ask(one, "What is 12 plus 30?");
      await answered(one);
      expect((await stored()).length === 0, "kept without being asked");
      await share(one);
      await eventually(async () => (await stored()).length === 1, "the chat is on the server");
      const two = await open(own.url);
      await share(two);
      await two.getByRole("link", { name: "What is 12 plus 30?" }).click();
      await two.getByText("12 plus 30 is 42.").waitFor();
      const before = (await stored())[0].etag;
      await ask(two, "What is 20 plus 3?");
      await two.getByText("20 plus 3 is 23.").waitFor();
      await eventually(async () => (await stored())[0].etag !== before, "the change is sent");
      await one.getByRole("link", { name: "What is 12 plus 30?" }).click();
      await eventually(async () => (await look(one), await one.getByText("20 plus 3 is 23.").count()) === 1, "the change comes in");
      await one.locator(".chat-row").first().hover();
      await one.locator(".chat-row").first().getByRole("button", { name: /Delete/ }).click();
      await eventually(async () => (await stored()).length === 0, "removed on the server");
      await eventually(async () => (await look(two), await two.locator(".chat-row").count()) === 0, "removed in the other browser");
    } finally {
      await own.close();
    }
  },
  async "chats on a server that keeps none"({ open, hearth }) {
    const page = await open(`${hearth.url}#/settings`);
    await page.getByRole("tab", { name: "Chats" }).click();
    await page.getByLabel("Keep them on the server").click();
    await page.getByText("This server keeps no chats").waitFor();
    expect(!(await page.getByLabel("Keep them on the server").isChecked()), "it stays switched on");
  },
  async "fixed models"({ open, program }) {
    const own = await new Hearth(program).start(["--model", "demo=demo"]);
    try {
      const page = await open(`${own.url}#/models`);
      await page.getByLabel("Name of a model").fill("qwen3:4b");
      await page.getByRole("button", { name: "Pull", exact: true }).first().click();
      await page.getByText("started with fixed models").waitFor();
    } finally {
      await own.close();
    }
  },
  async "behind a prefix"({ open, hearth }) {
    const fake = new Fake(hearth.port);
    fake.prefix = "/llm";
    await fake.start();
    try {
      const page = await open(fake.url);
      await ask(page, "What is 12 plus 30?");
      await page.getByText("12 plus 30 is 42.").waitFor();
      await page.evaluate(() => (location.hash = "#/models"));
      await page.getByRole("heading", { name: "Models", exact: true }).waitFor();
    } finally {
      fake.close();
    }
  },
  async "without the UI"({ program }) {
    const own = await new Hearth(program).start(["--no-ui"]);
    try {
      const html = await fetch(own.url, { headers: { Accept: "text/html" } });
      expect((await html.text()) === "Ollama is running", "a page all the same");
      expect((await fetch(`${own.url}ui`)).status === 404, "/ui is there");
    } finally {
      await own.close();
    }
  },
};
