/** One model beside the list: does it fit, what is it made of, its template and parameters. */
import { useEffect, useState } from "preact/hooks";
import { go } from "../app/router";
import { BUNDLED } from "../chat/welcome";
import { type ApiError, get, post } from "../lib/api";
import { bytes, count, rate } from "../lib/format";
import { setPrefs } from "../lib/prefs";
import { models } from "../lib/server";
import { type ModelInfo, removeModel } from "../pages/models";
import { askSure } from "../ui/ask";
import { complain } from "../ui/toasts";
import { Adapters } from "./adapters";
import { Defaults } from "./defaults";
import { PAGE_TYPES } from "./pagetypes";

interface Fit {
  context: number;
  context_trained: number;
  memory: {
    weights: number;
    cache: number;
    scratch: number;
    other: number;
    total: number;
    available: number | null;
    fits: boolean | null;
  };
  speed?: { generation_tokens_per_second?: number | null };
}

interface Shown {
  template: string;
  parameters: string;
  system?: string;
  capabilities: string[];
}

export function Details({ name, info }: { name: string; info?: ModelInfo }) {
  const state = models.value.find((m) => m.name === name)?.state;
  return (
    <aside class="page-side stack" aria-label={`Details of ${name}`}>
      <h2>{name}</h2>
      {info?.meta && (
        <dl class="facts left">
          <Fact k="Context" v={`${count(info.meta.n_ctx)} of ${count(info.meta.n_ctx_train)}`} />
          <Fact k="Parameters" v={count(info.meta.n_params)} />
          <Fact k="Kind" v={`${info.meta.family}, ${info.meta.quantization}`} />
        </dl>
      )}
      <div class="row wrap">
        <button type="button" class="primary" onClick={() => chatWith(name)}>
          Chat
        </button>
        {name in BUNDLED ? null : (
          <button type="button" onClick={() => remove(name).catch(complain)}>
            Remove
          </button>
        )}
      </div>
      <FitPanel name={name} />
      <Adapters name={name} onChat={chatWith} />
      {state === "loaded" ? <Text name={name} /> : <p class="dim">Load it to see its template and parameters.</p>}
    </aside>
  );
}

async function remove(name: string): Promise<void> {
  const about = "Files that no other name uses go, too.";
  if (await askSure({ title: `Remove ${name}?`, about, action: "Remove", danger: true })) await removeModel(name);
}

/** A new chat; the model stays chosen. */
function chatWith(model: string): void {
  setPrefs({ model });
  go("chat");
}

function Fact({ k, v }: { k: string; v: string }) {
  return (
    <div>
      <dt class="dim">{k}</dt>
      <dd>{v}</dd>
    </div>
  );
}

function FitPanel({ name }: { name: string }) {
  const [ctx, setCtx] = useState(0);
  const [type, setType] = useState("");
  const [fit, setFit] = useState<Fit | null>(null);
  const [why, setWhy] = useState("");
  useEffect(() => {
    const t = setTimeout(() => {
      get<Fit>(`v1/fit?model=${encodeURIComponent(name)}&ctx=${ctx}${type && `&type=${type}`}`)
        .then((f) => {
          setFit(f);
          setWhy("");
        })
        .catch((e: ApiError) => setWhy(e.message));
    }, 200);
    return () => clearTimeout(t);
  }, [name, ctx, type]);
  const m = fit?.memory;
  const whole = m ? Math.max(m.total, m.available ?? m.total) : 1;
  const bar = (kind: string, n: number, x: number) => (
    <rect class={`fit-${kind}`} x={(x / whole) * 100} y="0" width={(n / whole) * 100} height="8" />
  );
  return (
    <section aria-label="Does it fit">
      <label class="number">
        <span>At a context of</span>
        <input
          type="number"
          min={0}
          step={1024}
          placeholder="default"
          value={ctx || ""}
          onInput={(e) => setCtx(Number(e.currentTarget.value) || 0)}
        />
      </label>
      <label class="number">
        <span>Cache in</span>
        <select value={type} onChange={(e) => setType(e.currentTarget.value)}>
          <option value="">default</option>
          {PAGE_TYPES.map(([value, words]) => (
            <option key={value} value={value}>
              {words}
            </option>
          ))}
        </select>
      </label>
      {why && <p class="problem">{why}</p>}
      {m && (
        <>
          <svg
            class="fit"
            viewBox="0 0 100 8"
            preserveAspectRatio="none"
            role="img"
            aria-label={`${bytes(m.total)} of ${bytes(m.available)}`}
          >
            {bar("weights", m.weights, 0)}
            {bar("cache", m.cache, m.weights)}
            {bar("rest", m.scratch + m.other, m.weights + m.cache)}
          </svg>
          <dl class="facts left">
            <Fact k="Weights" v={bytes(m.weights)} />
            <Fact k="Cache" v={`${bytes(m.cache)} at ${count(fit.context)} tokens`} />
            <Fact k="Rest" v={bytes(m.scratch + m.other)} />
            <Fact k="Together" v={`${bytes(m.total)} of ${m.available === null ? "?" : bytes(m.available)} free`} />
          </dl>
          <p class={m.fits === false ? "problem" : "good"}>
            {m.fits === false ? "It does not fit." : m.fits ? "It fits." : ""}
          </p>
          {!!fit.speed?.generation_tokens_per_second && (
            <p class="dim">about {rate(fit.speed.generation_tokens_per_second)} t/s here</p>
          )}
        </>
      )}
    </section>
  );
}

function Text({ name }: { name: string }) {
  const [shown, setShown] = useState<Shown | null>(null);
  useEffect(() => {
    post<Shown>("api/show", { model: name }).then(setShown).catch(complain);
  }, [name]);
  if (!shown) return null;
  return (
    <>
      <p>
        {shown.capabilities.map((c) => (
          <span key={c} class="chip">
            {c}
          </span>
        ))}
      </p>
      {shown.parameters && <pre class="sunk">{shown.parameters}</pre>}
      <Defaults key={name} name={name} parameters={shown.parameters} system={shown.system ?? ""} />
      <details>
        <summary>Template</summary>
        <pre class="sunk">{shown.template}</pre>
      </details>
    </>
  );
}
