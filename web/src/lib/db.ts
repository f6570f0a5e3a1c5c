/** IndexedDB. Files lie apart from messages: a full quota costs a file, never the history. */
import { type DBSchema, type IDBPDatabase, openDB } from "idb";
import type { Chat, Message } from "../chat/types";

interface Schema extends DBSchema {
  chats: { key: string; value: Chat };
  messages: { key: string; value: Message; indexes: { chat: string } };
  blobs: { key: string; value: { id: string; data: string } };
}

let opened: Promise<IDBPDatabase<Schema>> | null = null;

export function db(): Promise<IDBPDatabase<Schema>> {
  opened ??= openDB<Schema>("hearth", 1, {
    upgrade(d) {
      d.createObjectStore("chats", { keyPath: "id" });
      d.createObjectStore("messages", { keyPath: "id" }).createIndex("chat", "chat");
      d.createObjectStore("blobs", { keyPath: "id" });
    },
  });
  return opened;
}

type Watcher = (chat: string, gone: boolean) => void;
let told: Watcher = () => {};
/** Who hears of every change; there is one. */
export const watch = (watcher: Watcher) => {
  told = watcher;
};

export async function putChat(chat: Chat): Promise<void> {
  await (await db()).put("chats", chat);
  told(chat.id, false);
}
export async function putMessage(m: Message): Promise<void> {
  await (await db()).put("messages", m);
  told(m.chat, false);
}
export const allChats = async () => (await db()).getAll("chats");
export const allMessages = async () => (await db()).getAll("messages");
export const messagesOf = async (chat: string) => (await db()).getAllFromIndex("messages", "chat", chat);
export const getBlob = async (id: string) => (await (await db()).get("blobs", id))?.data ?? "";
export const putBlob = async (id: string, data: string) => (await db()).put("blobs", { id, data });

/** own: a change that was made here, not one that came from the server. */
export async function putAll(chats: Chat[], messages: Message[], own = true): Promise<void> {
  const tx = (await db()).transaction(["chats", "messages"], "readwrite");
  for (const c of chats) tx.objectStore("chats").put(c);
  for (const m of messages) tx.objectStore("messages").put(m);
  await tx.done;
  if (own) for (const id of new Set([...chats.map((c) => c.id), ...messages.map((m) => m.chat)])) told(id, false);
}

export async function removeMessages(ids: string[]): Promise<void> {
  const tx = (await db()).transaction("messages", "readwrite");
  for (const id of ids) tx.store.delete(id);
  await tx.done;
}

export async function removeChat(id: string, own = true): Promise<void> {
  const tx = (await db()).transaction(["chats", "messages"], "readwrite");
  tx.objectStore("chats").delete(id);
  for (const key of await tx.objectStore("messages").index("chat").getAllKeys(id))
    tx.objectStore("messages").delete(key);
  await tx.done;
  if (own) told(id, true);
}

export async function wipe(): Promise<void> {
  const tx = (await db()).transaction(["chats", "messages", "blobs"], "readwrite");
  for (const name of ["chats", "messages", "blobs"] as const) tx.objectStore(name).clear();
  await tx.done;
}
