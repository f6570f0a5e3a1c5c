/** A conversation is a tree: an edit or another try makes a sibling, and nothing is overwritten. */
import type { Message } from "./types";

export type Messages = ReadonlyMap<string, Message>;

/** From the first message to this one. */
export function pathTo(messages: Messages, head: string | null): Message[] {
  const path: Message[] = [];
  const seen = new Set<string>();
  for (
    let m = head ? messages.get(head) : undefined;
    m && !seen.has(m.id);
    m = m.parent ? messages.get(m.parent) : undefined
  ) {
    seen.add(m.id);
    path.push(m);
  }
  return path.reverse();
}

const byAge = (a: Message, b: Message) => a.created - b.created || (a.id < b.id ? -1 : 1);

export function childrenOf(messages: Messages, parent: string | null): Message[] {
  return [...messages.values()].filter((m) => m.parent === parent).sort(byAge);
}

/** All children at once, by their parents, each list as childrenOf gives it. */
export function familiesOf(messages: Messages): ReadonlyMap<string | null, Message[]> {
  const found = new Map<string | null, Message[]>();
  for (const m of messages.values()) {
    const siblings = found.get(m.parent);
    if (siblings) siblings.push(m);
    else found.set(m.parent, [m]);
  }
  for (const siblings of found.values()) if (siblings.length > 1) siblings.sort(byAge);
  return found;
}

/** The newest end of the branch that goes through this message. */
export function leafOf(messages: Messages, id: string): string {
  const families = familiesOf(messages);
  let at = id;
  for (let n = messages.size; n >= 0; n--) {
    const next = families.get(at)?.at(-1);
    if (!next) return at;
    at = next.id;
  }
  return at;
}

/** This message and all that follow from it. */
export function below(messages: Messages, id: string): Message[] {
  const families = familiesOf(messages);
  const first = messages.get(id);
  const found = first ? [first] : [];
  for (let i = 0; i < found.length; i++) found.push(...(families.get(found[i]!.id) ?? []));
  return found;
}

/** A title out of what was asked first. */
export function titleOf(text: string): string {
  const line = text.replace(/\s+/g, " ").trim();
  if (line.length <= 48) return line || "New chat";
  const cut = line.slice(0, 48);
  const space = cut.lastIndexOf(" ");
  return `${space > 24 ? cut.slice(0, space) : cut}…`;
}
