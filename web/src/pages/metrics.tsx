/** Live figures: five minutes of differences, and the requests under way. */
import { useEffect } from "preact/hooks";
import { post } from "../lib/api";
import { bytes, count, percent, rate, seconds } from "../lib/format";
import { type Point, points } from "../lib/history";
import { quantileBetween } from "../lib/quantile";
import { requests, stats, topics } from "../lib/server";
import { Plot } from "../metrics/plot";
import { complain } from "../ui/toasts";

type Row = [string, Exclude<keyof Point, "first">, (v: number) => string];
const PLOTS: Row[] = [
  ["Written, tokens/s", "generated", rate],
  ["Read, tokens/s", "prompt", rate],
  ["Tokens per step", "batch", rate],
  ["Running", "running", String],
  ["Waiting", "waiting", String],
  ["Cache in use", "pages", percent],
  ["Memory", "memory", bytes],
  ["Connections", "connections", String],
];
/** In place of the last one where the server speculates. */
const GUESSED: Row = ["Guessed right, tokens/s", "guessed", rate];

export function MetricsPage() {
  useEffect(() => {
    topics.value = ["requests"];
    return () => {
      topics.value = [];
    };
  }, []);
  const s = stats.value;
  const now = points.value.at(-1);
  if (!s) return <p class="empty">Waiting for figures.</p>;
  const first = (q: number) => quantileBetween(points.value[0]?.first ?? [], now?.first ?? [], q);
  const codes = Object.entries(s.responses ?? {})
    .sort(([a], [b]) => Number(a) - Number(b))
    .map(([code, n]) => `${count(n)} × ${code}`)
    .join(", ");
  return (
    <div class="page">
      <h1 class="page-title">Metrics</h1>
      <dl class="figures-row">
        <Big k="tokens/s" v={rate(now?.generated ?? 0)} />
        <Big k="first token, median" v={seconds(first(0.5) ?? s.first_token_seconds.p50)} />
        <Big k="first token, p99" help="99 of 100 came sooner" v={seconds(first(0.99) ?? s.first_token_seconds.p99)} />
        <Big k="waiting" v={String(s.waiting)} />
        <Big k="cache" v={percent(now?.pages ?? 0)} />
        <Big k="tokens written" v={count(s.tokens_generated)} />
        {!!s.tokens_drafted && (
          <Big
            k="guesses right"
            help="Speculation: the part of the tokens guessed ahead that was right"
            v={percent((s.tokens_drafted_accepted ?? 0) / s.tokens_drafted)}
          />
        )}
        {s.preemptions > 0 && (
          <Big k="made way" help="Sequences that were put back because the cache was full" v={count(s.preemptions)} />
        )}
        {s.machine && <Big k="memory free" v={bytes(s.machine.memory_available_bytes)} />}
        <Big k="up" v={seconds(s.uptime_seconds)} />
      </dl>
      <p class="dim small">
        {first(0.5) === undefined
          ? "The plots show the last five minutes, as far as this page was open; the rest is since the server began."
          : "The last five minutes, as far as this page was open."}
        {codes && ` Answers by HTTP status: ${codes}.`}
      </p>
      <div class="plots">
        {(s.tokens_drafted ? [...PLOTS.slice(0, -1), GUESSED] : PLOTS).map(([title, key, say]) => (
          <Plot
            key={key}
            title={title}
            say={say}
            times={points.value.map((p) => p.at)}
            values={points.value.map((p) => p[key])}
          />
        ))}
      </div>
      <Requests />
    </div>
  );
}

function Big({ k, v, help }: { k: string; v: string; help?: string }) {
  return (
    <div title={help}>
      <dt>{k}</dt>
      <dd>{v}</dd>
    </div>
  );
}

function Requests() {
  const list = requests.value;
  return (
    <section aria-label="Running requests">
      <h2 class="section-head">Running requests</h2>
      {!list.length && <p class="dim">None.</p>}
      {list.length > 0 && (
        <table class="rows">
          <thead>
            <tr>
              <th class="wide-only">Path</th>
              <th>Model</th>
              <th>State</th>
              <th class="wide-only">Prompt</th>
              <th>Written</th>
              <th>Age</th>
              <th>
                <span class="offscreen">Cancel</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {list.map((r) => (
              <tr key={r.id}>
                <td class="wide-only">{r.path}</td>
                <td>{r.model ?? ""}</td>
                <td>{r.state}</td>
                <td class="wide-only">{r.prompt_tokens || ""}</td>
                <td>{r.generated_tokens || ""}</td>
                <td>{seconds(r.age_seconds)}</td>
                <td class="end">
                  <button type="button" onClick={() => post(`v1/requests/${r.id}/cancel`, {}).catch(complain)}>
                    Cancel
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
