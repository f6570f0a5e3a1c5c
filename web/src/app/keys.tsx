/** Keys that work everywhere. None acts while text is being typed (but with Mod) or an input method composes. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { runOf, stop } from "../chat/run";
import { openId } from "../chat/store";
import { prefs, setPrefs } from "../lib/prefs";
import { Dialog } from "../ui/dialog";
import { paletteOpen } from "./palette";
import { go, type Page, page } from "./router";

export const helpOpen = signal(false);
/** A letter that the page at hand was asked for: "/" and "Up". */
const LETTERS: Record<string, Page> = {
  c: "chat",
  m: "models",
  p: "playground",
  g: "metrics",
  s: "settings",
  l: "logs",
};

const typing = (e: KeyboardEvent) =>
  e.target instanceof HTMLElement && (e.target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName));

/** When "g" was pressed: a letter right behind it is the name of a page. */
let pending = Number.NEGATIVE_INFINITY;

function withMod(e: KeyboardEvent): boolean {
  const key = e.key.toLowerCase();
  if (key === "k") paletteOpen.value = !paletteOpen.value;
  else if (key === "o" && e.shiftKey) go("chat");
  else if (key === "b") setPrefs({ listOpen: !prefs.value.listOpen });
  else return false;
  return true;
}

function plain(e: KeyboardEvent): boolean {
  if (e.key === "?") helpOpen.value = true;
  else if (e.key === "/") document.querySelector<HTMLInputElement>("[data-search]")?.focus();
  else if (performance.now() - pending < 1200 && LETTERS[e.key]) {
    pending = Number.NEGATIVE_INFINITY;
    go(LETTERS[e.key]!);
  } else if (e.key === "g") pending = performance.now();
  else return false;
  return true;
}

function stopAnswer(): boolean {
  const run = page.value === "chat" && openId.value ? runOf(openId.value) : undefined;
  if (!run || document.querySelector("dialog[open]")) return false;
  stop(run);
  return true;
}

function onKey(e: KeyboardEvent): void {
  if (e.isComposing || e.defaultPrevented || e.altKey) return;
  const mod = e.metaKey || e.ctrlKey;
  const dialog = document.querySelector("dialog[open]");
  const done = mod ? withMod(e) : e.key === "Escape" ? stopAnswer() : !typing(e) && !dialog && plain(e);
  if (done) e.preventDefault();
}

export function useKeys(): void {
  useEffect(() => {
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

export const MOD = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl";
const ROWS: [string, string][] = [
  [`${MOD} K`, "Command palette"],
  [`${MOD} Shift O`, "New chat"],
  [`${MOD} B`, "Show or hide the list of chats"],
  ["/", "Search"],
  ["g then c m p g s l", "Chat, models, playground, metrics, settings, logs"],
  ["Enter", "Send; Shift Enter for a new line"],
  ["Up", "In an empty message: edit the last one"],
  ["Esc", "Stop the answer"],
  ["End", "To the newest message"],
  [`${MOD} Enter`, "Run, in the playground"],
  ["l, p", "In the models: load or unload the chosen one; pull"],
  ["?", "These keys"],
];

export function KeysHelp() {
  if (!helpOpen.value) return null;
  return (
    <Dialog label="Keys" onClose={() => (helpOpen.value = false)}>
      <h2>Keys</h2>
      <dl class="keys">
        {ROWS.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
