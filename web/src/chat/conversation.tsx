/** The messages of a chat. */
import { useEffect, useState } from "preact/hooks";
import { useFollow } from "./follow";
import { MessageView } from "./message";
import { runs } from "./run";
import { families, messagesLoaded, openId, path } from "./store";
import type { Message } from "./types";
import { Welcome } from "./welcome";
import { useWindow } from "./window";

export function Conversation() {
  const list = path.value;
  const { box, away, toEnd } = useFollow(list);
  const { first, settled, older } = useWindow(list.length, messagesLoaded.value, box);
  useEffect(() => toEnd(), [messagesLoaded.value]);
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
