/** The chats of this browser: the list, and the one that is open with its messages. */
import { computed, signal } from "@preact/signals";
import * as db from "../lib/db";
import { uid } from "../lib/id";
import { prefs } from "../lib/prefs";
import { undoable } from "../ui/toasts";
import { takeTails } from "./tails";
import { below, familiesOf, leafOf, pathTo } from "./tree";
import type { Chat, Message } from "./types";

export const chats = signal<Chat[]>([]);
export const chatsLoaded = signal(false);
export const openId = signal<string | null>(null);
/** Messages of the open chat. A message is replaced, never changed; what streams is in run.ts until it is flushed. */
export const messages = signal<ReadonlyMap<string, Message>>(new Map());
export const messagesLoaded = signal(true);
export const openChat = computed(() => chats.value.find((c) => c.id === openId.value) ?? null);
/** The versions of each message, by what they answer. */
export const families = computed(() => familiesOf(messages.value));
export const path = computed(() => pathTo(messages.value, openChat.value?.head ?? null));

/** What the last page left behind is in its place before a message is shown. */
const tails = takeTails();

const byTime = (a: Chat, b: Chat) => b.updated - a.updated;

export async function loadChats(): Promise<void> {
  chats.value = (await db.allChats()).sort(byTime);
  await tails;
  chatsLoaded.value = true;
}

/** Messages that were being written when the page went away have ended there. */
const settle = (m: Message): Message =>
  m.state === "streaming" ? { ...m, state: "cut", error: "The page was closed while this was written." } : m;

const live = new Map<string, Message>();
/** What run.ts is writing, so that opening its chat shows the newest. */
export const setLive = (m: Message | null, id: string) => (m ? live.set(id, m) : live.delete(id));

export async function show(id: string | null): Promise<void> {
  if (openId.value === id) return;
  openId.value = id;
  messages.value = new Map();
  if (!id) return;
  messagesLoaded.value = false;
  await tails;
  const list = await db.messagesOf(id);
  if (openId.value !== id) return;
  messages.value = new Map(list.map((m) => [m.id, live.get(m.id) ?? settle(m)]));
  messagesLoaded.value = true;
}

/** What came from elsewhere into the chat that is open. */
export async function reload(): Promise<void> {
  const id = openId.value;
  if (!id) return;
  if (!chats.value.some((c) => c.id === id)) {
    location.hash = "#/chat";
    return;
  }
  const list = await db.messagesOf(id);
  if (openId.value === id) messages.value = new Map(list.map((m) => [m.id, live.get(m.id) ?? m]));
}

export function makeChat(title: string, settings = {}): Chat {
  const now = Date.now();
  const chat: Chat = { id: uid(), title, model: prefs.value.model, settings, head: null, created: now, updated: now };
  chats.value = [chat, ...chats.value];
  return chat;
}

export async function updateChat(id: string, change: Partial<Chat>, touch = false): Promise<void> {
  const found = chats.value.find((c) => c.id === id);
  if (!found) return;
  const next = { ...found, ...change, updated: touch ? Date.now() : found.updated };
  chats.value = chats.value.map((c) => (c.id === id ? next : c)).sort(byTime);
  await db.putChat(next);
}

export async function saveMessage(m: Message, persist = true): Promise<void> {
  if (m.chat === openId.value) messages.value = new Map(messages.value).set(m.id, m);
  if (persist) await db.putMessage(m);
}

export function setHead(id: string): void {
  const chat = openChat.value;
  if (chat) updateChat(chat.id, { head: leafOf(messages.value, id) });
}

/** Takes a message and what follows from it away; the undo puts all back. */
export async function deleteMessage(m: Message): Promise<void> {
  const gone = below(messages.value, m.id);
  const chat = openChat.value;
  if (!chat) return;
  const head = chat.head;
  const rest = new Map(messages.value);
  for (const g of gone) rest.delete(g.id);
  messages.value = rest;
  const sibling = [...rest.values()].filter((r) => r.parent === m.parent).at(-1);
  await updateChat(chat.id, { head: sibling ? leafOf(rest, sibling.id) : m.parent });
  await db.removeMessages(gone.map((g) => g.id));
  undoable(`${gone.length === 1 ? "Message" : `${gone.length} messages`} deleted`, async () => {
    await db.putAll([], gone);
    if (openId.value === chat.id) {
      const back = new Map(messages.value);
      for (const g of gone) back.set(g.id, g);
      messages.value = back;
    }
    await updateChat(chat.id, { head });
  });
}

export async function deleteChat(chat: Chat): Promise<void> {
  const kept = await db.messagesOf(chat.id);
  chats.value = chats.value.filter((c) => c.id !== chat.id);
  if (openId.value === chat.id) location.hash = "#/chat";
  await db.removeChat(chat.id);
  undoable("Chat deleted", async () => {
    await db.putAll([chat], kept);
    chats.value = [...chats.value, chat].sort(byTime);
  });
}

/** A new chat with everything up to this message. */
export async function fork(m: Message): Promise<void> {
  const from = openChat.value;
  if (!from) return;
  const chat = { ...makeChat(`${from.title} (fork)`, from.settings), model: from.model };
  let parent: string | null = null;
  const copies: Message[] = pathTo(messages.value, m.id).map((old) => {
    const copy = { ...old, id: uid(), chat: chat.id, parent };
    parent = copy.id;
    return copy;
  });
  chat.head = parent;
  chats.value = chats.value.map((c) => (c.id === chat.id ? chat : c));
  await db.putAll([chat], copies);
  location.hash = `#/chat/${chat.id}`;
}
