/** Chats as a file: the whole tree of each, with what was attached. Import adds; what is already here is left alone. */
import * as db from "../lib/db";
import { uid } from "../lib/id";
import type { Chat, Message } from "./types";

const FORMAT = "hearth-chats";

export async function exportText(): Promise<string> {
  const messages = await db.allMessages();
  const chats = await Promise.all(
    (await db.allChats()).map(async (c) => ({
      ...c,
      messages: await Promise.all(messages.filter((m) => m.chat === c.id).map(withFiles)),
    })),
  );
  return JSON.stringify({ format: FORMAT, version: 1, chats }, null, 1);
}

/** One chat as it lies in such a file; null: it is gone. */
export async function file(id: string): Promise<Filed | null> {
  const chat = (await db.allChats()).find((c) => c.id === id);
  return chat ? { ...chat, messages: await Promise.all((await db.messagesOf(id)).map(withFiles)) } : null;
}

async function withFiles(m: Message): Promise<Message> {
  if (!m.attachments) return m;
  const attachments = await Promise.all(
    m.attachments.map(async (a) => ({ ...a, text: a.text ?? (await db.getBlob(a.blob)) })),
  );
  return { ...m, attachments };
}

export type Filed = Partial<Chat> & { messages?: Partial<Message>[] };

interface File {
  format?: string;
  version?: number;
  chats?: Filed[];
}

const text = (v: unknown, otherwise = "") => (typeof v === "string" ? v : otherwise);
const ROLES = ["user", "assistant", "tool"];

function readMessage(m: Partial<Message>, chat: string): Message {
  if (!m.id || !ROLES.includes(m.role ?? ""))
    throw new Error("This file has a message without an id or with an unknown role.");
  return {
    ...m,
    id: text(m.id),
    chat,
    parent: text(m.parent) || null,
    role: m.role as Message["role"],
    content: text(m.content),
    reasoning: text(m.reasoning) || undefined,
    tool_calls: Array.isArray(m.tool_calls) ? m.tool_calls : undefined,
    state: m.state === "streaming" || !m.state ? "done" : m.state,
    created: Number(m.created) || 0,
  };
}

/** A chat of a file, checked and filled up. */
export function readChat(c: Filed): { chat: Chat; messages: Message[] } {
  const id = text(c.id) || uid();
  const messages = (c.messages ?? []).map((m) => readMessage(m, id));
  const now = Date.now();
  const chat: Chat = {
    id,
    title: text(c.title, "Imported chat"),
    model: text(c.model),
    settings: c.settings && typeof c.settings === "object" ? c.settings : {},
    head: messages.some((m) => m.id === c.head) ? text(c.head) : (messages.at(-1)?.id ?? null),
    pinned: c.pinned === true,
    folder: text(c.folder) || undefined,
    created: Number(c.created) || now,
    updated: Number(c.updated) || now,
  };
  return { chat, messages };
}

/** Returns how many chats came in. */
export async function importText(json: string): Promise<number> {
  let file: File;
  try {
    file = JSON.parse(json);
  } catch {
    throw new Error("This file is not JSON.");
  }
  if (file?.format !== FORMAT || !Array.isArray(file.chats))
    throw new Error("This file does not hold chats of Hearth.");
  if (file.version !== 1) throw new Error(`This file has version ${file.version}; this page reads version 1.`);
  const here = new Set((await db.allChats()).map((c) => c.id));
  const chats: Chat[] = [];
  const messages: Message[] = [];
  for (const c of file.chats) {
    if (here.has(text(c.id))) continue;
    const one = readChat(c);
    chats.push(one.chat);
    messages.push(...one.messages);
  }
  await db.putAll(chats, messages);
  return chats.length;
}
