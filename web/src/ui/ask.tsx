/** Questions before something is done: a text, or whether it is meant. One at a time, answered or closed. */
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { Dialog } from "./dialog";

interface Question {
  title: string;
  about?: string;
  /** What the button says. */
  action: string;
  danger?: boolean;
  /** With a text to fill in: its label and what stands there first. */
  label?: string;
  text?: string;
  choices?: string[];
  tell: (text: string | null) => void;
}

const asked = signal<Question | null>(null);

/** null: it was closed. */
export const askText = (q: Omit<Question, "tell">) =>
  new Promise<string | null>((tell) => {
    asked.value?.tell(null);
    asked.value = { ...q, tell };
  });

export const askSure = async (q: Omit<Question, "tell" | "label">) => (await askText(q)) !== null;

export function Ask() {
  return asked.value ? <Open key={asked.value.title} {...asked.value} /> : null;
}

function Open(q: Question) {
  const [text, setText] = useState(q.text ?? "");
  const end = (said: string | null) => {
    asked.value = null;
    q.tell(said);
  };
  return (
    <Dialog label={q.title} onClose={() => end(null)}>
      <form
        class="stack"
        onSubmit={(e) => {
          e.preventDefault();
          end(text.trim());
        }}
      >
        <h2>{q.title}</h2>
        {q.about && <p class="dim">{q.about}</p>}
        {q.label && (
          <label class="field">
            <span>{q.label}</span>
            <input
              autofocus
              list={q.choices?.length ? "ask-choices" : undefined}
              value={text}
              onInput={(e) => setText(e.currentTarget.value)}
            />
          </label>
        )}
        {!!q.choices?.length && (
          <datalist id="ask-choices">
            {q.choices.map((c) => (
              <option key={c} value={c} />
            ))}
          </datalist>
        )}
        <div class="row end">
          <button type="button" autofocus={!q.label} onClick={() => end(null)}>
            Cancel
          </button>
          <button type="submit" class={q.danger ? "danger" : "primary"}>
            {q.action}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
