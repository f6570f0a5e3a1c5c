import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { answered, ask, eventually, expect, Hearth, root } from "../lib.mjs";
import { Fake, says } from "../fake.mjs";

const attachTo = (page, name, mimeType, buffer) => page.getByLabel("Attach files").setInputFiles({ name, mimeType, buffer: Buffer.from(buffer) });

function pdf(text) {
  const stream = `BT /F1 24 Tf 72 700 Td (${text}) Tj ET`;
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
    `<< /Length ${stream.length} >>\nstream\n${stream}\nendstream`,
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
  ];
  let out = "%PDF-1.4\n";
  const at = objects.map((o, i) => {
    const here = out.length;
    out += `${i + 1} 0 obj\n${o}\nendobj\n`;
    return here;
  });
  const table = out.length;
  out += `xref\n0 6\n0000000000 65535 f \n${at.map((n) => `${String(n).padStart(10, "0")} 00000 n \n`).join("")}`;
  return `${out}trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n${table}\n%%EOF\n`;
}

/** A tiny model with random weights that takes pictures, behind a proxy that notes what is asked. */
async function seeing(program, work) {
  const hearth = new Hearth(program);
  const folder = join(hearth.home, "seeing");
  const make = "import sys; sys.path.insert(0, sys.argv[1]); from vision_model import make; make('gemma3', sys.argv[2])";
  execFileSync("python3", ["-c", make, join(root, "tests/api"), folder]);
  await hearth.start(["--model", `seeing=${folder}`]);
  const fake = await new Fake(hearth.port).start();
  try {
    await work(fake);
  } finally {
    fake.close();
    await hearth.close();
  }
}

const picture = (name) => readFileSync(join(root, "tests/golden/vision/pictures", `${name}.png`));

/** A paste or a drop of a file, as the browser tells of it. */
const give = (page, kind, name, bytes) =>
  page.evaluate(
    ([what, as, data]) => {
      const files = new DataTransfer();
      files.items.add(new File([Uint8Array.from(data)], as, { type: "image/png" }));
      const event =
        what === "paste"
          ? new ClipboardEvent("paste", { clipboardData: files, bubbles: true, cancelable: true })
          : new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true });
      (what === "paste" ? document.querySelector("textarea") : document.querySelector(".conversation")).dispatchEvent(event);
    },
    [kind, name, [...bytes]],
  );

export const fileJourneys = {
  async "pictures: choose, paste, drop"({ open, program }) {
    await seeing(program, async (fake) => {
      const page = await open(fake.url);
      await attachTo(page, "a.png", "image/png", picture("a"));
      await give(page, "paste", "b.png", picture("b"));
      await give(page, "drop", "d.png", picture("d"));
      await eventually(async () => (await page.locator(".composer .thumb img").count()) === 3, "three thumbnails");
      await page.getByLabel("Remove b.png").click();
      await ask(page, "Which?");
      await answered(page);
      const parts = fake.asked[0].messages[0].content;
      expect(parts.map((p) => p.type).join() === "image_url,image_url,text", "not two pictures and the text");
      expect(parts[0].image_url.url === `data:image/png;base64,${picture("a").toString("base64")}`, "another picture");
      expect((await page.locator(".ending.bad").count()) === 0, "the server did not take it");
      await page.reload();
      await eventually(
        () => page.locator(".message.user .thumb img").evaluateAll((l) => l.length === 2 && l.every((i) => i.naturalWidth > 0)),
        "the pictures are kept with the chat",
      );
      await page.getByRole("button", { name: "Retry" }).click();
      await answered(page);
      expect(fake.asked[1].messages[0].content.length === 3, "the pictures are not sent again");
    });
  },
  async "picture in the playground"({ open, program }) {
    await seeing(program, async (fake) => {
      const page = await open(`${fake.url}#/playground`);
      await page.getByRole("tab", { name: "Vision" }).click();
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByText("Choose a picture.").waitFor();
      await page.getByLabel("Picture").setInputFiles({ name: "a.png", mimeType: "image/png", buffer: picture("a") });
      await page.locator(".thumb img").waitFor();
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByText("Whole answer").waitFor();
      expect(fake.asked[0].messages[0].content[0].image_url.url.startsWith("data:image/png"), "no picture is sent");
    });
  },
  async "text file"({ open, fake }) {
    const page = await open();
    await attachTo(page, "notes.txt", "text/plain", "the heron is grey");
    await page.getByText("notes.txt").waitFor();
    fake.chat = says("Read.");
    await ask(page, "What is in it?");
    await answered(page);
    expect(fake.asked[0].messages[0].content.includes("the heron is grey"), "the file is not sent");
  },
  async "PDF"({ open, fake }) {
    const page = await open();
    await attachTo(page, "paper.pdf", "application/pdf", pdf("Herons are patient"));
    await page.getByText("paper.pdf").waitFor();
    fake.chat = says("Read.");
    await ask(page, "Summary?");
    await answered(page);
    expect(fake.asked[0].messages[0].content.includes("Herons are patient"), "the text of the PDF is not sent");
  },
  async "image refused"({ open }) {
    const page = await open();
    await attachTo(page, "cat.png", "image/png", "not really");
    await page.getByText("cat.png: demo does not take images").waitFor();
    expect((await page.locator(".composer .chip").count()) === 0, "it was attached all the same");
  },
  async "long paste becomes a file"({ open }) {
    const page = await open();
    await page.getByRole("textbox", { name: "Message" }).focus();
    await page.evaluate(() => {
      const data = new DataTransfer();
      data.setData("text/plain", "x".repeat(5000));
      document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
    });
    await page.getByText("pasted.txt").waitFor();
  },
  async "export, wipe, import"({ open, fake }) {
    const page = await open();
    fake.chat = says("Kept.");
    await ask(page, "Keep this");
    await answered(page);
    await page.evaluate(() => (location.hash = "#/settings"));
    await page.getByRole("tab", { name: "Chats" }).click();
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export all" }).click()]);
    const text = readFileSync(await download.path(), "utf8");
    expect(JSON.parse(text).format === "hearth-chats", "not the format");
    await page.getByRole("button", { name: "Remove all" }).click();
    await page.getByRole("button", { name: "Really remove all chats" }).click();
    await page.getByText("0 chats").waitFor();
    await page.getByLabel("Import chats").setInputFiles({ name: "a.json", mimeType: "application/json", buffer: Buffer.from(text) });
    await page.getByText("1 chat imported").waitFor();
    await page.evaluate(() => (location.hash = "#/chat"));
    await page.getByRole("link", { name: "Keep this" }).click();
    await page.getByText("Kept.").waitFor();
    await page.evaluate(() => (location.hash = "#/settings"));
    await page.getByRole("tab", { name: "Chats" }).click();
    await page.getByLabel("Import chats").setInputFiles({ name: "b.json", mimeType: "application/json", buffer: Buffer.from("[1]") });
    await page.getByText("does not hold chats").waitFor();
  },
};
