/** The command palette: pages, chats, models, presets and actions, found by typing parts of their names. */
import { signal } from "@preact/signals";
import { useMemo, useState } from "preact/hooks";
import { chats, openChat, updateChat } from "../chat/store";
import { answerers } from "../lib/adapters";
import { post } from "../lib/api";
import { prefs, setPrefs } from "../lib/prefs";
import { models } from "../lib/server";
import { Dialog } from "../ui/dialog";
import { complain, note } from "../ui/toasts";
import { helpOpen } from "./keys";
import { go, PAGES, TITLES } from "./router";

export const paletteOpen = signal(false);

interface Command {
  kind: string;
  name: string;
  run: () => void;
}

function commands(): Command[] {
  const chat = openChat.value;
  const theme = (t: "light" | "dark" | "system"): Command => ({
    kind: "action",
    name: `Theme: ${t}`,
    run: () => setPrefs({ theme: t }),
  });
  const use = (name: string) => {
    setPrefs({ model: name });
    if (chat) updateChat(chat.id, { model: name });
    note(`${name} answers from now on`);
  };
  return [
    { kind: "action", name: "New chat", run: () => go("chat") },
    ...PAGES.map((p) => ({ kind: "page", name: TITLES[p], run: () => go(p) })),
    ...answerers.value.map((name) => ({ kind: "model", name: `Use ${name}`, run: () => use(name) })),
    ...models.value.map((m) => ({
      kind: "model",
      name: `${m.state === "loaded" ? "Unload" : "Load"} ${m.name}`,
      run: () => {
        post(`v1/models/${m.state === "loaded" ? "unload" : "load"}`, { model: m.name }).catch(complain);
      },
    })),
    ...prefs.value.presets.map((p) => ({
      kind: "preset",
      name: p.name,
      run: () => (chat ? void updateChat(chat.id, { settings: p.settings }) : note("Open a chat first")),
    })),
    theme("light"),
    theme("dark"),
    theme("system"),
    { kind: "action", name: "Keys", run: () => (helpOpen.value = true) },
    ...chats.value.map((c) => ({ kind: "chat", name: c.title, run: () => go(`chat/${c.id}`) })),
  ];
}

/** Every word must occur; earlier and nearer to a word's beginning is better. */
export function score(name: string, query: string): number {
  const text = name.toLowerCase();
  let sum = 0;
  for (const word of query.toLowerCase().split(/\s+/).filter(Boolean)) {
    const at = text.indexOf(word);
    if (at < 0) return -1;
    sum += (at === 0 || text[at - 1] === " " ? 100 : 50) - Math.min(at, 40);
  }
  return sum;
}

export function Palette() {
  return paletteOpen.value ? <Open /> : null;
}

function Open() {
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const all = useMemo(commands, []);
  const found = useMemo(() => {
    const rated = all.map((c) => ({ c, s: score(`${c.name} ${c.kind}`, query) })).filter((r) => r.s >= 0);
    if (query.trim()) rated.sort((a, b) => b.s - a.s);
    return rated.slice(0, 50).map((r) => r.c);
  }, [query]);
  const close = () => (paletteOpen.value = false);
  const run = (c?: Command) => {
    close();
    c?.run();
  };
  const onKey = (e: KeyboardEvent) => {
    if (e.isComposing) return;
    const step = e.key === "ArrowDown" ? 1 : e.key === "ArrowUp" ? -1 : 0;
    if (step) {
      const next = (at + step + found.length) % Math.max(1, found.length);
      setAt(next);
      document.getElementById(`cmd-${next}`)?.scrollIntoView({ block: "nearest" });
    } else if (e.key === "Enter") run(found[at]);
    else return;
    e.preventDefault();
  };
  return (
    <Dialog label="Command palette" onClose={close}>
      <input
        class="palette-input"
        role="combobox"
        aria-expanded="true"
        aria-controls="cmds"
        aria-activedescendant={`cmd-${at}`}
        aria-label="Command"
        placeholder="Page, chat, model, preset or action"
        autofocus
        value={query}
        onInput={(e) => {
          setQuery(e.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={onKey}
      />
      <div class="palette-list" id="cmds" role="listbox" aria-label="Commands">
        {found.map((c, i) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the input has the keys
          <div
            key={i}
            id={`cmd-${i}`}
            class="palette-row"
            role="option"
            tabIndex={-1}
            aria-selected={i === at}
            onClick={() => run(c)}
            onMouseMove={() => setAt(i)}
          >
            <span>{c.name}</span>
            <span class="dim">{c.kind}</span>
          </div>
        ))}
        {!found.length && <p class="empty">Nothing has these words.</p>}
      </div>
    </Dialog>
  );
}
