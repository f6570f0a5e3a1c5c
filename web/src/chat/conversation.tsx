/** The messages of a chat. */
import { useEffect, useState } from "preact/hooks";
import { useFollow } from "./follow";
import { MessageView } from "./message";
import { runs } from "./run";
import { families, messages, messagesLoaded, openId, path, setHead } from "./store";
import type { Message } from "./types";
import { Welcome } from "./welcome";
import { useWindow } from "./window";

/** sought: a message that a search found; empty: none. */
export function Conversation({ sought }: { sought: string }) {
  const list = path.value;
  const { box, away, toEnd, letGo } = useFollow(list);
  const at = sought ? list.findIndex((m) => m.id === sought) : -1;
  const { first, settled, older } = useWindow(list.length, messagesLoaded.value, box, at);
  useEffect(() => toEnd(), [messagesLoaded.value]);
  useEffect(() => {
    if (!sought || !messagesLoaded.value) return;
    if (at < 0) return messages.value.has(sought) ? setHead(sought) : undefined;
    letGo();
    return reveal(box.current?.querySelector(`[data-id="${CSS.escape(sought)}"]`));
  }, [sought, messagesLoaded.value, at >= 0]);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached by keyboard
    <div class="conversation" ref={box} tabIndex={0} role="log" aria-label="Messages" aria-live="off">
      <div class="column">
        {first > 0 && (
          <button type="button" class="quiet older" onClick={older} disabled={!settled}>
            {first} older messages
          </button>
        )}
        {list.slice(first).map((m) => placed(m, families.value, runs.value))}
        {!list.length && !openId.value && <Welcome />}
      </div>
      {away && (
        <button type="button" class="newest" onClick={toEnd}>
          Newest
        </button>
      )}
      <Announcer />
    </div>
  );
}

/** Into the middle of the view, and once more when what is above has its real height. */
function reveal(found: Element | null | undefined): (() => void) | undefined {
  if (!found) return;
  const center = () => found.scrollIntoView({ block: "center" });
  center();
  found.classList.add("found");
  const again = setTimeout(center, 100);
  const fade = setTimeout(() => found.classList.remove("found"), 3000);
  return () => {
    clearTimeout(again);
    clearTimeout(fade);
    found.classList.remove("found");
  };
}

/** One message with its place among its versions. Only what is another value than before is drawn again. */
function placed(m: Message, all: typeof families.value, running: typeof runs.value) {
  const siblings = all.get(m.parent) ?? [m];
  const at = siblings.length > 1 ? siblings.findIndex((s) => s.id === m.id) : 0;
  const run = running.get(m.id);
  return (
    <MessageView
      key={m.id}
      message={m}
      at={at}
      n={siblings.length}
      before={siblings[at - 1]?.id ?? ""}
      after={siblings[at + 1]?.id ?? ""}
      run={run}
      stamp={run ? running : undefined}
    />
  );
}

/** A screen reader hears that an answer began and that it ended, not each token. */
function Announcer() {
  const busy = [...runs.value.values()].some((r) => r.message.chat === openId.value);
  const [was, setWas] = useState(false);
  const [said, setSaid] = useState("");
  useEffect(() => {
    if (busy && !was) setSaid("Answering");
    if (!busy && was) setSaid("Answer complete");
    setWas(busy);
  }, [busy]);
  return (
    <div class="offscreen" role="status">
      {said}
    </div>
  );
}
