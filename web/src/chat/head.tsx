/** Above a conversation: its title, the model that answers, how full the context is. */
import { useState } from "preact/hooks";
import { answerers, refreshAdapters, statOf } from "../lib/adapters";
import { percent } from "../lib/format";
import { prefs, setPrefs } from "../lib/prefs";
import { Icon } from "../ui/icons";
import { modelOf } from "./actions";
import { openChat, path, updateChat } from "./store";

export function ChatHead() {
  const chat = openChat.value;
  const { listOpen, setupOpen } = prefs.value;
  return (
    <header class="chat-head">
      <button
        type="button"
        class="quiet icon-button"
        aria-label="List of chats"
        aria-expanded={listOpen}
        onClick={() => setPrefs({ listOpen: !listOpen })}
      >
        <Icon name="list" />
      </button>
      {chat ? <Title key={chat.id} id={chat.id} title={chat.title} /> : <h1 class="grow">New chat</h1>}
      <ModelPicker />
      <Meter />
      <button
        type="button"
        class="quiet icon-button"
        aria-label="Setup of this chat"
        aria-expanded={setupOpen}
        onClick={() => setPrefs({ setupOpen: !setupOpen })}
      >
        <Icon name="sliders" />
      </button>
    </header>
  );
}

function Title({ id, title }: { id: string; title: string }) {
  const [text, setText] = useState<string | null>(null);
  const save = () => {
    if (text?.trim() && text !== title) updateChat(id, { title: text.trim() });
    setText(null);
  };
  if (text === null) {
    return (
      <h1 class="grow">
        <button type="button" class="quiet title" title="Rename" onClick={() => setText(title)}>
          {title}
        </button>
      </h1>
    );
  }
  return (
    <input
      class="grow"
      aria-label="Title"
      autofocus
      value={text}
      onInput={(e) => setText(e.currentTarget.value)}
      onBlur={save}
      onKeyDown={(e) => (e.key === "Enter" ? save() : e.key === "Escape" && setText(null))}
    />
  );
}

function ModelPicker() {
  const chat = openChat.value;
  const now = modelOf(chat);
  const names = [...answerers.value];
  if (now && !names.includes(now)) names.unshift(now);
  const choose = (name: string) => {
    setPrefs({ model: name });
    if (chat) updateChat(chat.id, { model: name });
  };
  return (
    <select
      class="model-picker"
      aria-label="Model"
      title={now}
      value={now}
      onFocus={refreshAdapters}
      onChange={(e) => choose(e.currentTarget.value)}
    >
      {names.map((n) => (
        <option key={n} value={n}>
          {n}
        </option>
      ))}
      {!names.length && <option value="">no model</option>}
    </select>
  );
}

function Meter() {
  const total = path.value.findLast((m) => m.figures?.total_tokens)?.figures?.total_tokens ?? 0;
  const room = statOf(modelOf(openChat.value))?.context_length;
  if (!total || !room) return null;
  const part = total / room;
  return (
    <span class={part > 0.85 ? "meter warn" : "meter"} title={`${total} of ${room} tokens of the context`}>
      <span class="wide">context </span>
      {percent(part)}
    </span>
  );
}
