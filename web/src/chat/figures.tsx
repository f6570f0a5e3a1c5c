/** What an answer took: the short line, and all of it on a click. */
import { count, plural, rate, seconds } from "../lib/format";
import type { Figures } from "./types";

const tokens = (n: number) => plural(n, "token");

export function FiguresLine({ figures: f }: { figures: Figures }) {
  const rows: [string, string][] = [
    ["Prompt", tokens(f.prompt_n ?? 0)],
    ["From the cache", tokens(f.cached_n ?? 0)],
    ["Reading it", seconds((f.prompt_ms ?? 0) / 1000)],
    ["Answer", tokens(f.predicted_n ?? 0)],
    ["Writing it", seconds((f.predicted_ms ?? 0) / 1000)],
    ["First token after", f.first_ms === undefined ? "?" : seconds(f.first_ms / 1000)],
  ];
  if (f.draft_n) rows.push(["Guessed ahead", `${count(f.draft_right ?? 0)} of ${tokens(f.draft_n)} right`]);
  return (
    <details class="figures">
      <summary>
        {f.predicted_per_second ? <span>{rate(f.predicted_per_second)} t/s</span> : null}
        <span>{tokens(f.predicted_n ?? 0)}</span>
        {f.first_ms !== undefined && <span>first {seconds(f.first_ms / 1000)}</span>}
        {!!f.cached_n && <span>{f.cached_n} cached</span>}
      </summary>
      <dl class="facts">
        {rows.map(([k, v]) => (
          <div key={k}>
            <dt>{k}</dt>
            <dd>{v}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}
