// What the browser tests share: a real server with the demo model, Debian's chromium, journeys that count.
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

export const here = dirname(fileURLToPath(import.meta.url));
export const root = resolve(here, "../..");
const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync);

export function skip(why) {
  console.log(`skipped: ${why}`);
  process.exit(0);
}

export async function tools() {
  if (!CHROMIUM) skip("chromium is not installed (scripts/setup test)");
  try {
    const { chromium } = await import("playwright-core");
    return { chromium };
  } catch {
    return skip("npm ci was not run in web/e2e");
  }
}

export const launch = (chromium) =>
  chromium.launch({
    executablePath: CHROMIUM,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-dev-shm-usage",
      "--disable-background-networking",
      "--no-first-run",
    ],
  });

export function freePort() {
  return new Promise((tell) => {
    const s = createServer();
    s.listen(0, "127.0.0.1", () => {
      const { port } = s.address();
      s.close(() => tell(port));
    });
  });
}

export class Hearth {
  constructor(program) {
    this.program = program;
    this.home = mkdtempSync(join(tmpdir(), "hearth-ui-"));
  }

  env() {
    const names = ["HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME"];
    return { ...process.env, ...Object.fromEntries(names.map((n) => [n, this.home])) };
  }

  /** Another command with the same registry. */
  run(...args) {
    return execFileSync(this.program, args, { env: this.env(), encoding: "utf8" });
  }

  async start(options = [], env = {}) {
    this.port ??= await freePort();
    this.url = `http://127.0.0.1:${this.port}/`;
    this.process = spawn(this.program, ["serve", "--port", `${this.port}`, "--no-socket", "--ready-json", ...options], {
      env: { ...this.env(), ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.said = "";
    this.process.stderr.on("data", (d) => (this.said += d));
    await new Promise((tell, fail) => {
      this.process.stdout.once("data", tell);
      this.process.once("exit", () => fail(new Error(`the server did not start: ${this.said}`)));
    });
    return this;
  }

  async end(signal = "SIGTERM") {
    if (!this.process || this.process.exitCode !== null || this.process.signalCode !== null) return;
    const over = new Promise((tell) => this.process.once("exit", tell));
    this.process.kill(signal);
    await over;
  }

  async close() {
    await this.end("SIGKILL");
    rmSync(this.home, { recursive: true, force: true });
  }
}

/** A page that notes everything that must not happen: errors, CSP reports, requests to elsewhere. */
export async function openPage(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15000);
  page.wrong = [];
  page.on("pageerror", (e) => page.wrong.push(`error: ${e.message}`));
  page.on("console", (m) => {
    if (m.type() === "error" && !/Failed to load resource/.test(m.text())) page.wrong.push(`console: ${m.text()}`);
  });
  const origin = new URL(url).origin;
  page.on("request", (r) => {
    if (!r.url().startsWith(origin) && !/^(data|blob):/.test(r.url())) page.wrong.push(`foreign request: ${r.url()}`);
  });
  await page.goto(url);
  return page;
}

export async function ask(page, text) {
  const box = page.getByRole("textbox", { name: "Message" });
  const before = await page.locator(".message.user").count();
  const answers = await page.locator(".message.assistant").count();
  await box.fill(text);
  await box.press("Enter");
  await page.locator(".message.user").nth(before).waitFor();
  await page.locator(".message.assistant").nth(answers).waitFor();
}

export const answered = (page) => page.locator(".message.assistant").last().locator(".actions").waitFor();

export async function eventually(check, what, ms = 10000) {
  const end = Date.now() + ms;
  for (;;) {
    let found = false;
    try {
      found = await check();
    } catch {
      // not yet
    }
    if (found) return;
    if (Date.now() > end) throw new Error(`did not happen: ${what}`);
    await new Promise((tell) => setTimeout(tell, 30));
  }
}

export function expect(truth, what) {
  if (!truth) throw new Error(what);
}

export class Journeys {
  constructor() {
    this.failed = 0;
    this.n = 0;
  }
  async run(name, work) {
    const begin = Date.now();
    this.n++;
    try {
      const note = await work();
      console.log(`check ok ${name} (${((Date.now() - begin) / 1000).toFixed(1)} s${note ? `; ${note}` : ""})`);
    } catch (why) {
      this.failed++;
      console.log(`check FAILED ${name}: ${why.message.split("\n").slice(0, 6).join(" | ")}`);
    }
  }
}

/** A LoRA adapter for the demo model in PEFT's form; every factor has the same value. */
export function writeAdapter(dir) {
  mkdirSync(dir, { recursive: true });
  const [rank, width] = [2, 512];
  const bytes = rank * width * 4;
  const name = (part) => `base_model.model.model.layers.0.self_attn.q_proj.lora_${part}.weight`;
  const head = Buffer.from(
    JSON.stringify({
      [name("A")]: { dtype: "F32", shape: [rank, width], data_offsets: [0, bytes] },
      [name("B")]: { dtype: "F32", shape: [width, rank], data_offsets: [bytes, 2 * bytes] },
    }),
  );
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(head.length));
  const data = Buffer.from(new Float32Array(2 * rank * width).fill(0.001).buffer);
  writeFileSync(join(dir, "adapter_model.safetensors"), Buffer.concat([size, head, data]));
  const config = { peft_type: "LORA", r: rank, lora_alpha: 4, target_modules: ["q_proj"], bias: "none" };
  writeFileSync(join(dir, "adapter_config.json"), JSON.stringify({ ...config, task_type: "CAUSAL_LM" }));
}
