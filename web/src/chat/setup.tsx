/** The settings of one conversation: system prompt, preset, sampling, thinking, tools, the answer's form. */
import { useState } from "preact/hooks";
import { adaptersOf, shortName } from "../lib/adapters";
import { type ChatSettings, prefs, setPrefs } from "../lib/prefs";
import { Icon } from "../ui/icons";
import { note } from "../ui/toasts";
import { draftSettings, modelOf, setDraftSettings } from "./actions";
import { FormatForm } from "./format";
import { openChat, updateChat } from "./store";
import { builtin } from "./tools";

type Change = (c: Partial<ChatSettings>) => void;

export function Setup() {
  const chat = openChat.value;
  const [, redraw] = useState(0);
  const s = chat?.settings ?? draftSettings();
  const replace = (next: ChatSettings) => {
    if (chat) updateChat(chat.id, { settings: next });
    else setDraftSettings(next);
    redraw((n) => n + 1);
  };
  const change: Change = (c) => replace({ ...s, ...c });
  return (
    <aside class="setup" aria-label="Setup of this chat">
      <div class="list-head">
        <h2 class="grow">Setup</h2>
        <button
          type="button"
          class="quiet icon-button"
          aria-label="Close setup"
          onClick={() => setPrefs({ setupOpen: false })}
        >
          <Icon name="close" />
        </button>
      </div>
      <div class="scroll stack">
        <Presets settings={s} onUse={replace} />
        <label class="field">
          <span>System prompt</span>
          <textarea rows={4} value={s.system ?? ""} onInput={(e) => change({ system: e.currentTarget.value })} />
        </label>
        <SamplingForm s={s} change={change} />
        <ThinkingForm s={s} change={change} />
        <ToolsForm s={s} change={change} />
        <AdaptersForm model={modelOf(chat)} s={s} change={change} />
        <FormatForm s={s} change={change} />
      </div>
    </aside>
  );
}

function Presets({ settings, onUse }: { settings: ChatSettings; onUse: (s: ChatSettings) => void }) {
  const list = prefs.value.presets;
  const [name, setName] = useState("");
  const save = () => {
    setPrefs({ presets: [...list.filter((p) => p.name !== name.trim()), { name: name.trim(), settings }] });
    note(`Preset ${name.trim()} saved`);
    setName("");
  };
  return (
    <div class="field">
      <label>
        <span>Preset</span>
        <select
          aria-label="Preset"
          value=""
          onChange={(e) => {
            const p = list.find((q) => q.name === e.currentTarget.value);
            if (p) onUse(p.settings);
          }}
        >
          <option value="">{list.length ? "use…" : "none saved yet"}</option>
          {list.map((p) => (
            <option key={p.name}>{p.name}</option>
          ))}
        </select>
      </label>
      <div class="row">
        <input
          class="grow"
          aria-label="Name of a preset"
          placeholder="Save these as"
          value={name}
          onInput={(e) => setName(e.currentTarget.value)}
        />
        <button type="button" disabled={!name.trim()} onClick={save}>
          Save
        </button>
      </div>
    </div>
  );
}

const NUMBERS: [keyof ChatSettings, string, number, number, number][] = [
  ["temperature", "Temperature", 0, 2, 0.05],
  ["top_p", "Top p", 0, 1, 0.01],
  ["top_k", "Top k", 0, 1000, 1],
  ["min_p", "Min p", 0, 1, 0.01],
  ["repeat_penalty", "Repeat penalty", 0.5, 2, 0.01],
  ["max_tokens", "Max tokens", 1, 1000000, 1],
  ["seed", "Seed", 0, 4294967295, 1],
];

function SamplingForm({ s, change }: { s: ChatSettings; change: Change }) {
  return (
    <fieldset class="numbers">
      <legend>Sampling</legend>
      {NUMBERS.map(([key, label, min, max, step]) => (
        <label key={key} class="number">
          <span>{label}</span>
          <input
            type="number"
            min={min}
            max={max}
            step={step}
            placeholder="default"
            value={s[key] === undefined ? "" : String(s[key])}
            onInput={(e) => change({ [key]: e.currentTarget.value === "" ? undefined : Number(e.currentTarget.value) })}
          />
        </label>
      ))}
      <label class="field">
        <span>Stop at (one per line)</span>
        <textarea rows={1} value={s.stop ?? ""} onInput={(e) => change({ stop: e.currentTarget.value || undefined })} />
      </label>
    </fieldset>
  );
}

function ThinkingForm({ s, change }: { s: ChatSettings; change: Change }) {
  return (
    <fieldset>
      <legend>Thinking</legend>
      <label class="number">
        <span>Think first</span>
        <select
          value={s.thinking ?? ""}
          onChange={(e) => change({ thinking: (e.currentTarget.value || undefined) as ChatSettings["thinking"] })}
        >
          <option value="">default</option>
          <option value="on">yes</option>
          <option value="off">no</option>
        </select>
      </label>
      <label class="number">
        <span>Effort</span>
        <select
          value={s.effort ?? ""}
          onChange={(e) => change({ effort: (e.currentTarget.value || undefined) as ChatSettings["effort"] })}
        >
          <option value="">default</option>
          <option>low</option>
          <option>medium</option>
          <option>high</option>
        </select>
      </label>
      <label class="number">
        <span>Budget (tokens)</span>
        <input
          type="number"
          min={0}
          placeholder="none"
          value={s.thinking_budget ?? ""}
          onInput={(e) =>
            change({ thinking_budget: e.currentTarget.value === "" ? undefined : Number(e.currentTarget.value) })
          }
        />
      </label>
    </fieldset>
  );
}

/** Adapters of the model at hand; nothing where it has none. */
function AdaptersForm({ model, s, change }: { model: string; s: ChatSettings; change: Change }) {
  const list = adaptersOf(model);
  if (!list.length) return null;
  const set = (name: string, text: string) => {
    const { [name]: _, ...rest } = s.lora ?? {};
    const lora = text === "" ? rest : { ...rest, [name]: Number(text) };
    change({ lora: Object.keys(lora).length ? lora : undefined });
  };
  return (
    <fieldset>
      <legend>Adapters</legend>
      {list.map(shortName).map((name) => (
        <label key={name} class="number">
          <span class="clip" title={name}>
            {name}
          </span>
          <input
            type="number"
            min={-1000}
            max={1000}
            step={0.1}
            placeholder="not chosen"
            value={s.lora?.[name] ?? ""}
            onInput={(e) => set(name, e.currentTarget.value)}
          />
        </label>
      ))}
      <p class="dim small">A weight of 1 is that of the training.</p>
    </fieldset>
  );
}

function ToolsForm({ s, change }: { s: ChatSettings; change: Change }) {
  const on = s.tools ?? [];
  const toggle = (name: string) => change({ tools: on.includes(name) ? on.filter((n) => n !== name) : [...on, name] });
  return (
    <fieldset>
      <legend>Tools</legend>
      {builtin.map((t) => (
        <label key={t.name} class="check">
          <input type="checkbox" checked={on.includes(t.name)} onInput={() => toggle(t.name)} />
          <span>
            {t.name}
            <span class="dim about">{t.help}</span>
          </span>
        </label>
      ))}
      <details>
        <summary>Others, answered by hand</summary>
        <textarea
          rows={4}
          class="mono"
          aria-label="Tools as JSON"
          placeholder='[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}]'
          value={s.custom_tools ?? ""}
          onInput={(e) => change({ custom_tools: e.currentTarget.value || undefined })}
        />
      </details>
    </fieldset>
  );
}
