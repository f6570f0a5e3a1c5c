import { answered, ask, eventually, expect } from "../lib.mjs";
import { begin, end, piece, put, says, slowly } from "../fake.mjs";

const last = (page) => page.locator(".message.assistant").last();
const words = Array.from({ length: 400 }, (_, i) => `word${i} `);

export const chatJourneys = {
  async "something to begin with"({ open, hearth }) {
    const page = await open(hearth.url);
    await page.getByRole("button", { name: "What is 12 plus 30?" }).click();
    await page.getByText("12 plus 30 is 42.").waitFor();
    await answered(page);
    await page.locator(".figures summary").last().click();
    await page.getByText("First token after").waitFor();
    await page.getByRole("button", { name: "New" }).click();
    await page.getByRole("link", { name: "Get a larger one" }).click();
    await page.getByRole("heading", { name: "Models", exact: true }).waitFor();
    await page.getByRole("button", { name: "Chat", exact: true }).click();
    await page.getByRole("heading", { name: "New chat" }).waitFor();
  },
  async "first chat"({ open, hearth }) {
    const page = await open(hearth.url);
    await ask(page, "What is 12 plus 30?");
    await answered(page);
    expect((await last(page).locator(".prose").textContent()) === "12 plus 30 is 42.", "the answer is not 12 plus 30 is 42.");
    expect(/t\/s.*tokens.*first/.test(await last(page).locator(".figures summary").textContent()), "no figures");
    expect(await page.getByRole("link", { name: "What is 12 plus 30?" }).count(), "the chat is not in the list");
    await page.reload();
    await page.getByText("12 plus 30 is 42.").waitFor();
  },
  async stop({ open, fake }) {
    const page = await open();
    fake.chat = slowly(words, 10);
    await ask(page, "Go");
    await page.getByText("word20").waitFor();
    await page.keyboard.press("Escape");
    await page.getByText("Stopped.").waitFor();
    expect((await last(page).textContent()).includes("word20"), "the part is gone");
    await eventually(() => fake.paths.includes("POST /v1/requests/req-0000000000000001/cancel"), "the request is cancelled");
    page.expectsErrors = true; // the cancel of a request that the fake made up is a 404
  },
  async continue({ open, fake }) {
    const page = await open();
    fake.chat = slowly(["12 plus", " 30", " is"], 20, 2);
    await ask(page, "What is 12 plus 30?");
    await page.getByText("was cut").waitFor();
    fake.chat = null;
    await page.getByRole("button", { name: "Continue" }).click();
    await answered(page);
    const text = await last(page).locator(".prose").textContent();
    expect(text === "12 plus 30 is 42.", `continued to '${text}'`);
    expect(fake.asked.at(-1).continue_final_message === true, "continue_final_message is not set");
  },
  async retry({ open, fake }) {
    const page = await open();
    fake.chat = says("First try.");
    await ask(page, "Go");
    await answered(page);
    fake.chat = says("Second try.");
    await last(page).getByRole("button", { name: "Retry" }).click();
    await page.getByText("Second try.").waitFor();
    await answered(page);
    expect((await last(page).locator(".branch").textContent()).includes("2/2"), "no 2/2");
    await page.getByRole("button", { name: "Previous version" }).click();
    await page.getByText("First try.").waitFor();
  },
  async branch({ open, fake }) {
    const page = await open();
    fake.chat = says("One.");
    await ask(page, "Say one");
    await answered(page);
    fake.chat = says("Two.");
    const user = page.locator(".message.user").last();
    await user.hover();
    await user.getByRole("button", { name: "Edit" }).click();
    await page.getByRole("textbox", { name: "Edit message" }).fill("Say two");
    await page.locator(".editor").getByRole("button", { name: "Send" }).click();
    await page.getByText("Two.").waitFor();
    expect(fake.asked.at(-1).messages.length === 1 && fake.asked.at(-1).messages[0].content === "Say two", "the branch has the old text");
    await user.getByRole("button", { name: "Previous version" }).click();
    await page.getByText("One.").waitFor();
    expect(await page.getByText("Say one").count(), "the old branch is gone");
  },
  async "edit by Up"({ open, fake }) {
    const page = await open();
    fake.chat = says("Yes.");
    await ask(page, "Hello");
    await answered(page);
    await page.getByRole("textbox", { name: "Message" }).press("ArrowUp");
    expect((await page.getByRole("textbox", { name: "Edit message" }).inputValue()) === "Hello", "the last message is not edited");
  },
  async fork({ open, fake }) {
    const page = await open();
    fake.chat = says("Yes.");
    await ask(page, "Hello");
    await answered(page);
    await last(page).getByRole("button", { name: "Fork" }).click();
    await page.getByRole("heading", { name: "Hello (fork)" }).waitFor();
    expect((await page.locator(".chat-row").count()) === 2, "there are not two chats");
    await page.getByText("Yes.").waitFor();
  },
  async "undo delete"({ open, fake }) {
    const page = await open();
    fake.chat = says("Precious.");
    await ask(page, "Hello");
    await answered(page);
    await last(page).getByRole("button", { name: "Delete" }).click();
    await eventually(async () => (await page.getByText("Precious.").count()) === 0, "it is gone");
    await page.getByRole("button", { name: "Undo" }).click();
    await page.getByText("Precious.").waitFor();
    await page.reload();
    await page.getByText("Precious.").waitFor();
  },
  async thoughts({ open, fake }) {
    const page = await open();
    fake.chat = (_b, a) => {
      begin(a);
      put(a, piece({ reasoning_content: "Let me think about it." }, 1));
      setTimeout(() => {
        put(a, piece({ content: "Done." }, 2));
        end(a, 2);
      }, 150);
      return true;
    };
    await ask(page, "Think");
    await answered(page);
    const fold = last(page).locator("details.thoughts");
    expect(/thoughts 0\.\d+ s/.test(await fold.locator("summary").textContent()), "no time of thinking");
    await fold.locator("summary").click();
    await page.getByText("Let me think about it.").waitFor();
  },
  async "tool card"({ open, fake }) {
    const page = await open();
    await page.getByRole("button", { name: "Setup of this chat" }).click();
    await page.getByLabel("calculator").check();
    fake.chat = (body, a) => {
      begin(a);
      const result = body.messages.find((m) => m.role === "tool");
      if (result) put(a, piece({ content: `It is ${JSON.parse(result.content).result}.` }, 1));
      else {
        put(a, piece({ tool_calls: [{ index: 0, id: "call_1", function: { name: "calculator", arguments: "" } }] }, 1));
        put(a, piece({ tool_calls: [{ index: 0, function: { arguments: '{"expression":' } }] }, 2));
        put(a, piece({ tool_calls: [{ index: 0, function: { arguments: '"6*(3+4)"}' } }] }, 3));
      }
      end(a, 3);
      return true;
    };
    await ask(page, "What is 6*(3+4)?");
    await page.getByRole("button", { name: "Run here" }).click();
    await page.getByRole("button", { name: "Send result" }).click();
    await page.getByText("It is 42.").waitFor();
    expect(fake.asked[0].tools[0].function.name === "calculator", "the tool is not offered");
  },
  async "tool answered by hand"({ open, fake }) {
    const page = await open();
    fake.chat = (body, a) => {
      begin(a);
      const result = body.messages.find((m) => m.role === "tool");
      if (result) put(a, piece({ content: `Heard ${result.content}.` }, 1));
      else put(a, piece({ tool_calls: [{ index: 0, id: "c", function: { name: "weather", arguments: "{}" } }] }, 1));
      end(a);
      return true;
    };
    await ask(page, "Weather?");
    await page.getByLabel("Result").fill("snow");
    await page.getByRole("button", { name: "Send result" }).click();
    await page.getByText("Heard snow.").waitFor();
  },
  async schema({ open, hearth }) {
    const page = await open(hearth.url);
    await page.getByRole("button", { name: "Setup of this chat" }).click();
    await page.getByRole("combobox", { name: "Form of the answer" }).selectOption("schema");
    await ask(page, "What is 12 plus 30?");
    await answered(page);
    const text = await last(page).locator(".prose").textContent();
    expect(Number.isInteger(JSON.parse(text).answer), `'${text}' does not follow the schema`);
  },
  async preset({ open, fake }) {
    const page = await open();
    await page.getByRole("button", { name: "Setup of this chat" }).click();
    await page.getByLabel("System prompt").fill("Be brief.");
    await page.getByLabel("Temperature").fill("0.3");
    await page.getByLabel("Name of a preset").fill("Brief");
    await page.locator(".setup").getByRole("button", { name: "Save" }).click();
    fake.chat = says("Ok.");
    await ask(page, "Hello");
    await answered(page);
    expect(fake.asked[0].messages[0].content === "Be brief." && fake.asked[0].temperature === 0.3, "the settings are not sent");
    await page.getByRole("button", { name: "New" }).click();
    await page.getByLabel("Preset", { exact: true }).selectOption("Brief");
    await ask(page, "Again");
    await answered(page);
    expect(fake.asked.at(-1).messages[0].content === "Be brief.", "the preset is not used");
  },
  async search({ open, fake }) {
    const page = await open();
    fake.chat = says("The heron stands in the reeds.");
    await ask(page, "A bird");
    await answered(page);
    fake.chat = says("A crow, then.");
    await last(page).getByRole("button", { name: "Retry", exact: true }).click();
    await page.getByText("A crow, then.").waitFor();
    await answered(page);
    await page.getByRole("button", { name: "New" }).click();
    fake.chat = says("Basalt.");
    await ask(page, "A stone");
    await answered(page);
    await page.locator("main").focus();
    await page.keyboard.press("/");
    await page.keyboard.type("heron");
    await page.locator(".hits a").first().click();
    await page.getByRole("heading", { name: "A bird" }).waitFor();
    await page.locator(".message.found", { hasText: "heron" }).waitFor();
  },
  async "lists and wide tables"({ open, fake }) {
    const page = await open();
    const cells = (word) => `| ${Array.from({ length: 20 }, (_, i) => `${word}${i}`).join(" | ")} |`;
    fake.chat = says(`- [ ] buy\n- [x] sell\n\n${cells("column")}\n|${"---|".repeat(20)}\n${cells("value")}\n`);
    await ask(page, "Show");
    await answered(page);
    const tasks = await page.locator(".task").evaluateAll((list) => list.map((t) => [t.textContent, t.clientHeight]));
    expect(tasks.length === 2 && tasks.every(([t, h]) => !t.includes("[") && h < 40), JSON.stringify(tasks));
    const wide = await page.locator(".table-scroll").evaluate((t) => [t.scrollWidth > t.clientWidth, t.clientHeight]);
    expect(wide[0] && wide[1] < 100, `words of the table are broken: ${wide}`);
  },
  async rename({ open, fake }) {
    const page = await open();
    fake.chat = says("Yes.");
    await ask(page, "Hello");
    await answered(page);
    await page.locator(".chat-head .title").click();
    await page.getByRole("textbox", { name: "Title" }).fill("Greetings");
    await page.keyboard.press("Enter");
    await page.locator(".chat-row a", { hasText: "Greetings" }).waitFor();
    await page.locator(".chat-row").hover();
    await page.getByRole("button", { name: "Folder of Greetings" }).click();
    await page.getByRole("textbox", { name: "Name; empty: none" }).fill("Work");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Work/" }).waitFor();
  },
};
