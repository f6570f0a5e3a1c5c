/** Models: what is here, what is loaded, what is being fetched, what would fit. */
import { useEffect, useState } from "preact/hooks";
import { ApiError, get, post, send } from "../lib/api";
import { bytes, params, percent, seconds } from "../lib/format";
import { type ModelStat, models, type Pull, pulls, stats } from "../lib/server";
import { Catalogue } from "../models/catalogue";
import { Details } from "../models/details";
import { Hub } from "../models/hub";
import { complain, note } from "../ui/toasts";

export interface ModelInfo {
  id: string;
  meta?: { family: string; quantization: string; n_params: number; size: number; n_ctx: number; n_ctx_train: number };
}

export function ModelsPage() {
  const [info, setInfo] = useState<Map<string, ModelInfo>>(new Map());
  const [open, setOpen] = useState("");
  const key = models.value.map((m) => `${m.name}${m.state}`).join();
  useEffect(() => {
    get<{ data: ModelInfo[] }>("v1/models")
      .then((list) => setInfo(new Map(list.data.map((m) => [m.id, m]))))
      .catch(() => {});
  }, [key]);
  const chosen = open || models.value[0]?.name || "";
  useEffect(() => {
    const onKey = (e: KeyboardEvent) => {
      const typing = e.target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName);
      if (e.defaultPrevented || e.isComposing || typing || e.metaKey || e.ctrlKey || e.altKey) return;
      if (e.key === "l") document.querySelector<HTMLButtonElement>("tr.chosen .load")?.click();
      else if (e.key === "p") document.querySelector<HTMLInputElement>("[data-search]")?.focus();
      else return;
      e.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return (
    <div class="page split">
      <section class="page-main">
        <h1 class="page-title">Models</h1>
        <PullForm />
        <Pulls list={pulls.value} />
        <table class="rows">
          <thead>
            <tr>
              <th>Name</th>
              <th class="wide-only">Kind</th>
              <th>Size</th>
              <th>State</th>
              <th>
                <span class="offscreen">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {models.value.map((m) => (
              <Row
                key={m.name}
                model={m}
                info={info.get(m.name)}
                chosen={m.name === chosen}
                onOpen={() => setOpen(m.name)}
              />
            ))}
          </tbody>
        </table>
        {!models.value.length && stats.value && <p class="empty">There is no model here yet. Pull one above.</p>}
      </section>
      {chosen && <Details key={chosen} name={chosen} info={info.get(chosen)} />}
      <section class="page-main">
        <Catalogue />
        <Hub />
      </section>
    </div>
  );
}

function PullForm() {
  const [name, setName] = useState("");
  const [why, setWhy] = useState("");
  const submit = async (e: Event) => {
    e.preventDefault();
    setWhy("");
    try {
      await post("v1/pulls", { model: name.trim() });
      setName("");
    } catch (error) {
      const fixed = error instanceof ApiError && error.status === 501;
      setWhy(fixed ? "This server was started with fixed models; it fetches none." : (error as Error).message);
    }
  };
  return (
    <form class="row wrap" onSubmit={submit} aria-label="Pull a model">
      <input
        class="grow"
        data-search
        aria-label="Name of a model"
        placeholder="qwen3:4b or hf.co/owner/repository:Q4_K_M"
        value={name}
        onInput={(e) => setName(e.currentTarget.value)}
      />
      <button type="submit" class="primary" disabled={!name.trim()}>
        Pull
      </button>
      {why && (
        <p class="problem line" role="alert">
          {why}
        </p>
      )}
    </form>
  );
}

function Pulls({ list }: { list: Pull[] }) {
  if (!list.length) return null;
  return (
    <ul class="pulls" aria-label="Pulls">
      {list.map((p) => (
        <PullRow key={p.name} pull={p} />
      ))}
    </ul>
  );
}

function PullRow({ pull: p }: { pull: Pull }) {
  const part = p.total ? p.completed / p.total : undefined;
  const speed = p.seconds > 1 && p.completed ? p.completed / p.seconds : 0;
  const end = () => send("DELETE", `v1/pulls?name=${encodeURIComponent(p.name)}`).catch(complain);
  return (
    <li>
      <div class="row">
        <strong class="grow clip">{p.name}</strong>
        {p.state === "running" && part !== undefined && <span>{percent(part)}</span>}
        {p.state === "running" && speed > 0 && <span class="dim">{bytes(speed)}/s</span>}
        {p.state === "running" && speed > 0 && p.total > p.completed && (
          <span class="dim">{seconds((p.total - p.completed) / speed)}</span>
        )}
        <button type="button" onClick={end}>
          {p.state === "running" ? "Stop" : "Dismiss"}
        </button>
      </div>
      <p class={p.error ? "problem" : "dim"}>
        {p.error ?? (p.state === "done" ? "It is here." : p.status || "beginning")}
      </p>
      {p.state === "running" && <progress value={part} max={1} aria-label={`Pull of ${p.name}`} />}
    </li>
  );
}

interface RowProps {
  model: ModelStat;
  info?: ModelInfo;
  chosen: boolean;
  onOpen: () => void;
}

function Row({ model: m, info, chosen, onOpen }: RowProps) {
  const [busy, setBusy] = useState(false);
  const act = async () => {
    setBusy(true);
    try {
      await post(`v1/models/${m.state === "loaded" ? "unload" : "load"}`, { model: m.name });
    } catch (why) {
      complain(why);
    }
    setBusy(false);
  };
  const left = m.expires_seconds;
  return (
    <tr aria-selected={chosen} class={chosen ? "chosen" : undefined}>
      <td>
        <button type="button" class="quiet name" onClick={onOpen} aria-expanded={chosen}>
          {m.name}
        </button>
      </td>
      <td class="dim wide-only">
        {info?.meta ? `${info.meta.family} ${params(info.meta.n_params)} ${info.meta.quantization}` : ""}
      </td>
      <td class="nowrap">{bytes(m.file_bytes || info?.meta?.size)}</td>
      <td>
        {m.quarantined ? <span class="bad">set aside after crashes</span> : m.state}
        {m.state === "loading" && m.load_fraction !== undefined && ` ${percent(m.load_fraction)}`}
        {m.state === "loaded" && (
          <span class="dim">
            {" "}
            {bytes(m.memory_bytes)}
            {left !== null && left !== undefined && ` · unloads in ${seconds(left)}`}
          </span>
        )}
      </td>
      <td class="end">
        <button
          type="button"
          class="load"
          disabled={busy || m.state === "loading"}
          onClick={act}
          aria-label={`${m.state === "loaded" ? "Unload" : "Load"} ${m.name}`}
        >
          {m.state === "loaded" ? "Unload" : "Load"}
        </button>
      </td>
    </tr>
  );
}

export const removeModel = async (name: string) => {
  await send("DELETE", "api/delete", { model: name });
  note(`${name} was removed`);
};
