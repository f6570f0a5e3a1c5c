/** The playground: each endpoint with its input, its output, and the same request as a curl line. */
import { useState } from "preact/hooks";
import { answerers } from "../lib/adapters";
import { type ApiError, apiKey, post, urlOf } from "../lib/api";
import { imageUrl, seesNow } from "../lib/images";
import { prefs } from "../lib/prefs";
import { defaultModel, models } from "../lib/server";
import { type Field, KINDS, type Kind, lines } from "../playground/kinds";
import { Output } from "../playground/output";
import { CopyButton } from "../ui/copy";
import { complain } from "../ui/toasts";

export function PlaygroundPage() {
  const [at, setAt] = useState(0);
  const kind = KINDS[at]!;
  return (
    <div class="page">
      <h1 class="page-title">Playground</h1>
      <div class="tabs" role="tablist" aria-label="Endpoints">
        {KINDS.map((k, i) => (
          <button
            key={k.name}
            type="button"
            role="tab"
            id={`kind-${k.name}`}
            aria-selected={i === at}
            aria-controls="kind-panel"
            onClick={(e) => {
              setAt(i);
              e.currentTarget.scrollIntoView({ block: "nearest", inline: "nearest" });
            }}
          >
            {k.name}
          </button>
        ))}
      </div>
      <div id="kind-panel" role="tabpanel" aria-labelledby={`kind-${kind.name}`}>
        <Bench key={kind.name} kind={kind} />
      </div>
    </div>
  );
}

function Bench({ kind }: { kind: Kind }) {
  const [values, setValues] = useState<Record<string, string>>(
    Object.fromEntries(kind.fields.map((f) => [f.key, f.initial])),
  );
  const [model, setModel] = useState(() => modelFor(kind));
  const [result, setResult] = useState<unknown>(undefined);
  const [texts, setTexts] = useState<string[]>([]);
  const [bad, setBad] = useState<{ message: string; param: string } | null>(null);
  const [busy, setBusy] = useState(false);
  const request = (): object | string => {
    try {
      return kind.body(values, model || defaultModel.value);
    } catch (why) {
      return (why as Error).message;
    }
  };
  const run = async () => {
    const body = request();
    setBad(null);
    if (typeof body === "string") return setBad({ message: body, param: kind.jsonField ?? "" });
    setBusy(true);
    try {
      setResult(await post(kind.path, body));
      setTexts(lines(kind.lines && values[kind.lines]));
    } catch (why) {
      const e = why as ApiError;
      setBad({ message: e.message, param: e.param ?? "" });
      setResult(undefined);
    }
    setBusy(false);
  };
  const body = request();
  const curlOf = (data: string) =>
    `curl ${urlOf(kind.path)} -H 'Content-Type: application/json'${apiKey.value ? " -H 'Authorization: Bearer KEY'" : ""} -d '${data}'`;
  const data = typeof body === "string" ? "" : JSON.stringify(body).replace(/'/g, "'\\''");
  return (
    <form
      class="bench"
      onSubmit={(e) => {
        e.preventDefault();
        run();
      }}
      onKeyDown={(e) => {
        if (e.key === "Enter" && (e.metaKey || e.ctrlKey)) {
          e.preventDefault();
          run();
        }
      }}
    >
      <div class="stack">
        <label class="field">
          <span>Model</span>
          <select value={model} onChange={(e) => setModel(e.currentTarget.value)}>
            {answerers.value.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        {kind.sees && seesNow(model || defaultModel.value) === false && (
          <p class="dim">{model || defaultModel.value} does not take images.</p>
        )}
        {kind.fields.map((f) => (
          <Input
            key={f.key}
            field={f}
            value={values[f.key] ?? ""}
            wrong={bad !== null && (matches(bad.param, f) || (!!f.says && bad.message.startsWith(f.says)))}
            onInput={(v) => setValues({ ...values, [f.key]: v })}
          />
        ))}
        <div class="row">
          <button type="submit" class="primary" disabled={busy}>
            Run
          </button>
          {bad && (
            <span class="problem" role="alert">
              {bad.message}
            </span>
          )}
        </div>
        <details>
          <summary>As curl</summary>
          <pre class="sunk">{curlOf(data.replace(/(base64,.{24})[^"]{24,}/g, "$1…"))}</pre>
          <CopyButton text={curlOf(data)} label="Copy curl" />
        </details>
      </div>
      <div class="output" aria-live="polite">
        {busy ? <progress aria-label="Running" /> : <Output kind={kind} result={result} texts={texts} />}
      </div>
    </form>
  );
}

/** The one that is used, or the first that sees where that is needed. */
function modelFor(kind: Kind): string {
  const used = prefs.value.model || defaultModel.value;
  if (!kind.sees || seesNow(used)) return used;
  return models.value.find((m) => seesNow(m.name))?.name ?? used;
}

const matches = (param: string, f: Field) =>
  param !== "" && (param.split(/[.[]/)[0] === (f.param ?? f.key) || param === f.key);

function Input({
  field: f,
  value,
  wrong,
  onInput,
}: {
  field: Field;
  value: string;
  wrong: boolean;
  onInput: (v: string) => void;
}) {
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is one of these
    <label class={f.rows || f.image ? "field" : "field short"}>
      <span>{f.label}</span>
      {f.image ? (
        <Picture value={value} onInput={onInput} />
      ) : f.rows ? (
        <textarea
          rows={f.rows}
          class={f.mono ? "mono" : undefined}
          aria-invalid={wrong}
          value={value}
          onInput={(e) => onInput(e.currentTarget.value)}
        />
      ) : (
        <input aria-invalid={wrong} value={value} onInput={(e) => onInput(e.currentTarget.value)} />
      )}
    </label>
  );
}

function Picture({ value, onInput }: { value: string; onInput: (v: string) => void }) {
  const take = (file?: File) => file && imageUrl(file).then(onInput).catch(complain);
  return (
    <>
      <input type="file" accept="image/*" onChange={(e) => take(e.currentTarget.files?.[0])} />
      {value && (
        <span class="thumb">
          <img src={value} alt="The chosen one" />
        </span>
      )}
    </>
  );
}
