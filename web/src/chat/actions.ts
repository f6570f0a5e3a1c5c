/** What a user does in a chat: send, retry, edit, continue, answer a tool call. */
import { ApiError, keyAsked } from "../lib/api";
import { uid } from "../lib/id";
import { prefs } from "../lib/prefs";
import { defaultModel, models } from "../lib/server";
import { complain } from "../ui/toasts";
import { bodyOf } from "./request";
import { runOf, start } from "./run";
import { chats, makeChat, messages, openChat, saveMessage, show, updateChat } from "./store";
import { runTool, toolNamed } from "./tools";
import { pathTo, titleOf } from "./tree";
import type { Attachment, Chat, Message } from "./types";

const fresh = (chat: string, parent: string | null, role: Message["role"], content: string): Message => ({
  id: uid(),
  chat,
  parent,
  role,
  content,
  state: "done",
  created: Date.now(),
});

/** The model that was used last, unless it is gone. */
function usedModel(): string {
  const used = prefs.value.model;
  const here = models.value.some((m) => used === m.name || used.startsWith(`${m.name}+`));
  return here ? used : defaultModel.value || used;
}

export const modelOf = (chat: Chat | null) => chat?.model || usedModel();

/** Settings of a chat that is not there yet. */
let draft: Chat["settings"] = {};
export const draftSettings = () => draft;
export const setDraftSettings = (s: Chat["settings"]) => {
  draft = s;
};

export async function sendText(text: string, attachments: Attachment[] = []): Promise<void> {
  let chat = openChat.value;
  if (chat && runOf(chat.id)) return;
  if (!chat) {
    chat = makeChat(titleOf(text || attachments[0]?.name || ""), draft);
    draft = {};
    await updateChat(chat.id, {});
    await show(chat.id);
    history.replaceState(null, "", `#/chat/${chat.id}`);
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
  const user = fresh(chat.id, chat.head, "user", text);
  if (attachments.length) user.attachments = attachments;
  await saveMessage(user);
  await updateChat(chat.id, { head: user.id }, true);
  await answer(user);
}

/** A new answer below this message, as the newest sibling of those that are there. */
export async function answer(parent: Message, model?: string): Promise<void> {
  const chat = chats.value.find((c) => c.id === parent.chat);
  if (!chat || runOf(chat.id)) return;
  const name = model || modelOf(chat);
  const reply: Message = { ...fresh(chat.id, parent.id, "assistant", ""), model: name, state: "streaming" };
  await saveMessage(reply);
  await updateChat(chat.id, { head: reply.id }, true);
  await write(chat, reply, pathTo(messages.value, parent.id), false);
}

async function write(chat: Chat, reply: Message, path: Message[], goOn: boolean): Promise<void> {
  let body: object;
  try {
    body = await bodyOf(reply.model || modelOf(chat), chat.settings, path, goOn);
  } catch (why) {
    await saveMessage({ ...reply, state: "failed", error: `The request cannot be made: ${(why as Error).message}` });
    return;
  }
  const done = await start(reply, body);
  // A call that the limit cut off has no results.
  if (done.tool_calls?.length && done.state === "done" && done.finish !== "length") await offerTools(chat, done);
}

export async function goOn(m: Message): Promise<void> {
  const chat = openChat.value;
  if (!chat || runOf(chat.id)) return;
  const parent = m.parent ? messages.value.get(m.parent) : undefined;
  if (!m.content) {
    const path = pathTo(messages.value, parent?.id ?? null);
    return write(chat, { ...m, reasoning: undefined, error: undefined }, path, false);
  }
  return write(chat, m, pathTo(messages.value, m.id), true);
}

export async function retry(m: Message, model?: string): Promise<void> {
  const parent = m.parent ? messages.value.get(m.parent) : undefined;
  if (parent) await answer(parent, model);
}

/** Another text in place of this one: a sibling, so the old one stays. A changed question is answered anew. */
export async function edit(m: Message, text: string): Promise<void> {
  const chat = openChat.value;
  if (!chat || (text === m.content && m.role === "assistant")) return;
  const changed: Message = {
    ...m,
    id: uid(),
    content: text,
    created: Date.now(),
    state: "done",
    figures: undefined,
    error: undefined,
  };
  await saveMessage(changed);
  await updateChat(chat.id, { head: changed.id }, true);
  if (m.role === "user") await answer(changed);
}

/** Tools that need no question are run at once. */
async function offerTools(chat: Chat, m: Message): Promise<void> {
  if (prefs.value.approveTools) return;
  if (!m.tool_calls?.every((c) => toolNamed(c.name) && chat.settings.tools?.includes(c.name))) return;
  await answerTools(
    m,
    m.tool_calls.map((c) => runTool(c.name, c.arguments)),
  );
}

export async function answerTools(m: Message, results: string[]): Promise<void> {
  const chat = chats.value.find((c) => c.id === m.chat);
  if (!chat || !m.tool_calls) return;
  let last = m;
  for (const [i, call] of m.tool_calls.entries()) {
    const result: Message = { ...fresh(m.chat, last.id, "tool", results[i] ?? ""), tool_call_id: call.id };
    await saveMessage(result);
    last = result;
  }
  await updateChat(chat.id, { head: last.id }, true);
  await answer(last);
}

export const guard = (work: Promise<unknown>) =>
  work.catch((why) => {
    if (!(why instanceof ApiError && why.status === 401 && keyAsked.value)) complain(why);
  });
