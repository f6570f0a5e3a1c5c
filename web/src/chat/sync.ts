/**
 * Chats that are kept on the server as well, where it offers that and somebody switched it on: what changes here is sent,
 * what changed there comes in. A chat that was left alone here since the last time becomes what it is there. One that
 * changed on both sides has the messages of both, since they are a tree; the newer side says title, settings and which
 * branch is shown.
 */
import { effect } from "@preact/signals";
import { ApiError, call, get } from "../lib/api";
import * as db from "../lib/db";
import { prefs, setPrefs } from "../lib/prefs";
import { link } from "../lib/server";
import { complain, note } from "../ui/toasts";
import { type Filed, file, readChat } from "./exchange";
import { chats, chatsLoaded, loadChats, reload } from "./store";
import type { Message } from "./types";

interface Remote {
  id: string;
  etag: string;
}

/** What is known since the last time: versions that both sides had, what changed here since then, what was removed. */
interface Known {
  etags: Record<string, string>;
  dirty: string[];
  gone: string[];
}

const KEY = "hearth.synced";
const PAUSE_MS = 1500;
let known: Known = { etags: {}, dirty: [], gone: [], ...JSON.parse(localStorage.getItem(KEY) ?? "{}") };
const remember = () => localStorage.setItem(KEY, JSON.stringify(known));
const without = (list: string[], id: string) => list.filter((i) => i !== id);
const path = (id: string) => `v1/chats/${encodeURIComponent(id)}`;

async function fetchChat(id: string): Promise<string> {
  const answer = await call(path(id));
  await take((await answer.json()) as Filed, known.dirty.includes(id));
  return answer.headers.get("ETag") ?? "";
}

/** The fuller of two copies of one message: an answer may have been cut here and gone on there. */
const fuller = (a: Message | undefined, b: Message) => (a && a.content.length >= b.content.length ? a : b);

async function take(there: Filed, changedHere: boolean): Promise<void> {
  const { chat, messages } = readChat(there);
  const here = chats.value.find((c) => c.id === chat.id);
  const own = new Map((await db.messagesOf(chat.id)).map((m) => [m.id, m]));
  if (changedHere) {
    const fresh = messages.filter((m) => fuller(own.get(m.id), m) === m);
    await db.putAll(here && here.updated >= chat.updated ? [] : [chat], fresh, false);
    return;
  }
  for (const m of messages) own.delete(m.id);
  await db.removeMessages([...own.keys()]);
  await db.putAll([chat], messages, false);
}

async function push(id: string, again = true): Promise<void> {
  const body = await file(id);
  if (!body) return;
  const seen: Record<string, string> = known.etags[id] ? { "If-Match": known.etags[id] } : { "If-None-Match": "*" };
  known.dirty = without(known.dirty, id);
  try {
    const answer = await call(path(id), { method: "PUT", body: JSON.stringify(body), headers: seen });
    known.etags[id] = answer.headers.get("ETag") ?? "";
  } catch (why) {
    known.dirty.push(id);
    if (!again || !(why instanceof ApiError) || why.status !== 412) throw why;
    delete known.etags[id];
    await fetchChat(id).then(
      (etag) => (known.etags[id] = etag),
      () => {}, // it was removed there meanwhile: the change here brings it back
    );
    await push(id, false);
  }
}

async function removeThere(id: string): Promise<void> {
  await call(path(id), { method: "DELETE" }).catch((why: ApiError) => {
    if (why.status !== 404) throw why;
  });
  known.gone = without(known.gone, id);
  delete known.etags[id];
}

/** True: something came in. */
async function bringIn(list: Remote[]): Promise<boolean> {
  let changed = false;
  for (const { id, etag } of list) {
    if (known.gone.includes(id) || known.etags[id] === etag) continue;
    const met = known.etags[id] || !chats.value.some((c) => c.id === id);
    if (!met) known.dirty = [...without(known.dirty, id), id]; // here and there, and never compared
    known.etags[id] = await fetchChat(id);
    changed = true;
  }
  const there = new Set(list.map((r) => r.id));
  for (const c of chats.value) {
    if (there.has(c.id)) continue;
    if (known.etags[c.id] && !known.dirty.includes(c.id)) {
      await db.removeChat(c.id, false); // removed in another browser
      changed = true;
    } else if (!known.dirty.includes(c.id)) known.dirty.push(c.id);
    delete known.etags[c.id];
  }
  return changed;
}

async function sync(): Promise<void> {
  const { data } = await get<{ data: Remote[] }>("v1/chats");
  if (await bringIn(data)) {
    await loadChats();
    await reload();
  }
  for (const id of [...known.gone]) await removeThere(id);
  for (const id of [...known.dirty]) await push(id);
}

let running: Promise<void> | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;

function failed(why: unknown): void {
  const status = why instanceof ApiError ? why.status : -1;
  if (status === 501) {
    setPrefs({ serverChats: false });
    note("This server keeps no chats: chats.bytes in its server.yaml allows it");
  } else if (status !== 0 && status !== 401) complain(why);
}

function soon(ms: number): void {
  clearTimeout(timer);
  timer = setTimeout(() => {
    if (running) return soon(PAUSE_MS);
    running = sync()
      .catch(failed)
      .finally(() => {
        running = null;
        remember();
      });
  }, ms);
}

/** The copies on the server stay; this browser forgets them. */
export function forgetServer(): void {
  clearTimeout(timer);
  setPrefs({ serverChats: false });
  known = { etags: {}, dirty: [], gone: [] };
  remember();
}

export function keepSynced(): void {
  db.watch((id, gone) => {
    if (!prefs.value.serverChats) return;
    known.dirty = gone ? without(known.dirty, id) : [...without(known.dirty, id), id];
    known.gone = gone ? [...without(known.gone, id), id] : without(known.gone, id);
    remember();
    soon(PAUSE_MS);
  });
  effect(() => {
    if (prefs.value.serverChats && chatsLoaded.value && link.value === "online") soon(0);
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && prefs.value.serverChats) soon(0);
  });
}
