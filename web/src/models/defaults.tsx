/** What a model does unless a request says otherwise. Saved in the server's registry: the model is created from itself. */
import { useState } from "preact/hooks";
import { post } from "../lib/api";
import { note } from "../ui/toasts";
import { PAGE_TYPES } from "./pagetypes";

const FIELDS: [key: string, label: string, step: number][] = [
  ["temperature", "Temperature", 0.1],
  ["top_p", "Top p", 0.05],
  ["top_k", "Top k", 1],
  ["min_p", "Min p", 0.01],
  ["repeat_penalty", "Repeat penalty", 0.05],
  ["num_predict", "Max tokens", 64],
  ["num_ctx", "Context", 1024],
];

/** "temperature 0.7" per line, as /api/show has it. */
const read = (text: string): Record<string, string> =>
  Object.fromEntries(
    text
      .split("\n")
      .map((line) => line.trim().split(/\s+/))
      .filter((words) => words.length === 2),
  );

export function Defaults({ name, parameters, system }: { name: string; parameters: string; system: string }) {
  const [values, setValues] = useState(read(parameters));
  const [text, setText] = useState(system);
  const [target, setTarget] = useState(name === "demo" ? "" : name);
  const [why, setWhy] = useState("");
  const save = async () => {
    const given = FIELDS.filter(([key]) => values[key]).map(([key]) => [key, Number(values[key])]);
    try {
      await post("api/create", {
        model: target.trim(),
        from: name,
        stream: false,
        parameters: { ...Object.fromEntries(given), ...(values.cache_type && { cache_type: values.cache_type }) },
        ...(text && { system: text }),
      });
      if (target.trim() === name) await post("v1/models/unload", { model: name });
      setWhy("");
      note(`Defaults of ${target.trim()} saved`);
    } catch (e) {
      setWhy((e as Error).message);
    }
  };
  return (
    <details>
      <summary>Defaults</summary>
      <form
        class="stack"
        aria-label={`Defaults of ${name}`}
        onSubmit={(e) => {
          e.preventDefault();
          save();
        }}
      >
        <label class="field">
          <span>System prompt</span>
          <textarea rows={3} value={text} onInput={(e) => setText(e.currentTarget.value)} />
        </label>
        {FIELDS.map(([key, label, step]) => (
          <label class="number" key={key}>
            <span>{label}</span>
            <input
              type="number"
              min={0}
              step={step}
              placeholder="model's own"
              value={values[key] ?? ""}
              onInput={(e) => setValues({ ...values, [key]: e.currentTarget.value })}
            />
          </label>
        ))}
        <label class="number">
          <span>Cache in</span>
          <select
            value={values.cache_type ?? ""}
            onChange={(e) => setValues({ ...values, cache_type: e.currentTarget.value })}
          >
            <option value="">default</option>
            {PAGE_TYPES.map(([value]) => (
              <option key={value}>{value}</option>
            ))}
          </select>
        </label>
        <label class="field">
          <span>Save as</span>
          <input value={target} placeholder="a name" onInput={(e) => setTarget(e.currentTarget.value)} />
        </label>
        {why && <p class="problem">{why}</p>}
        <button type="submit" disabled={!target.trim()}>
          Save
        </button>
      </form>
    </details>
  );
}
