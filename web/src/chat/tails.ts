/**
 * The last characters of an answer whose page goes away. IndexedDB may not finish a write then; localStorage does, so
 * what was shown but not yet saved is left there and taken at the next start.
 */
import * as db from "../lib/db";
import type { Message } from "./types";

const PREFIX = "hearth.tail.";

export function leaveTail(m: Message): void {
  try {
    localStorage.setItem(PREFIX + m.id, JSON.stringify(m));
  } catch {
    // a full quota: the last second's save has to do
  }
}

export async function takeTails(): Promise<void> {
  for (const key of Object.keys(localStorage).filter((k) => k.startsWith(PREFIX))) {
    try {
      const m: Message = JSON.parse(localStorage.getItem(key) ?? "");
      const saved = (await db.messagesOf(m.chat)).find((s) => s.id === m.id);
      if (saved?.state === "streaming" && saved.content.length <= m.content.length) await db.putMessage(m);
    } catch {
      // another version's
    }
    localStorage.removeItem(key);
  }
}
