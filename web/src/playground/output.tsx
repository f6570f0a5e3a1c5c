/** Results of the playground, in the shape that says most. */
import { MOD } from "../app/keys";
import { plural } from "../lib/format";
import { visible } from "../md/safe";
import { CopyButton } from "../ui/copy";
import type { Kind } from "./kinds";

// biome-ignore lint/suspicious/noExplicitAny: answers of many endpoints
type Any = any;

/** texts: what was asked for, line by line. */
interface Props {
  kind: Kind;
  result: Any;
  texts: string[];
}

export function Output({ kind, result, texts }: Props) {
  if (result === undefined)
    return (
      <p class="dim">
        The answer appears here.{" "}
        <span class="hints">
          <kbd>{MOD} Enter</kbd> runs.
        </span>
      </p>
    );
  return (
    <>
      <Shape kind={kind} result={result} texts={texts} />
      <details>
        <summary>Whole answer</summary>
        <CopyButton text={JSON.stringify(result, null, 2)} label="Copy answer" />
        <pre class="sunk">{JSON.stringify(result, null, 2).slice(0, 20000)}</pre>
      </details>
    </>
  );
}

function Shape({ kind, result, texts }: Props) {
  switch (kind.name) {
    case "Complete":
      return <Logprobs choice={result.choices?.[0]} />;
    case "Structured":
      return <pre class="sunk">{pretty(result.choices?.[0]?.message?.content ?? "")}</pre>;
    case "Vision":
      return <div class="plain">{result.choices?.[0]?.message?.content}</div>;
    case "Embed":
      return <Cosines list={result.data?.map((d: Any) => d.embedding) ?? []} texts={texts} />;
    case "Tokens":
      return <Tokens list={result.tokens ?? []} />;
    case "Template":
      return <pre class="sunk">{result.prompt}</pre>;
    case "Infill":
      return <pre class="sunk">{result.content}</pre>;
    case "Rerank":
      return <Ranks list={result.results ?? []} texts={texts} />;
    default:
      return <pre class="sunk">{JSON.stringify(result, null, 2)}</pre>;
  }
}

function Ranks({ list, texts }: { list: { index: number; relevance_score: number }[]; texts: string[] }) {
  return (
    <table class="rows">
      <thead>
        <tr>
          <th>Text, best first</th>
          <th>Score</th>
        </tr>
      </thead>
      <tbody>
        {list.map((r) => (
          <tr key={r.index}>
            <td>{texts[r.index] ?? r.index + 1}</td>
            <td>{r.relevance_score.toFixed(3)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const pretty = (text: string) => {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
};

/** Likely tokens are plain, unlikely ones stand out. */
function Logprobs({ choice }: { choice: Any }) {
  const tokens: string[] = choice?.logprobs?.tokens ?? [];
  const probs: number[] = choice?.logprobs?.token_logprobs ?? [];
  if (!tokens.length) return <div class="plain">{choice?.text}</div>;
  const others: Record<string, number>[] = choice?.logprobs?.top_logprobs ?? [];
  const level = (p: number) => (p > -0.1 ? "sure" : p > -1 ? "fair" : p > -2.5 ? "weak" : "rare");
  return (
    <>
      <div class="plain tokens">
        {tokens.map((t, i) => (
          <span key={i} class={`token ${level(probs[i] ?? 0)}`} title={alternatives(t, probs[i] ?? 0, others[i])}>
            {visible(t)}
          </span>
        ))}
      </div>
      <p class="legend dim small">
        How likely each token was:
        <span class="token sure">over 90%</span>
        <span class="token fair">over 37%</span>
        <span class="token weak">over 8%</span>
        <span class="token rare">less</span>
      </p>
    </>
  );
}

/** The token's own share, and what else might have stood there. */
function alternatives(token: string, logprob: number, top: Record<string, number> = {}): string {
  const share = (p: number) => `${(Math.exp(p) * 100).toFixed(1)}%`;
  const rest = Object.entries(top).filter(([t]) => t !== token);
  return [share(logprob), ...rest.map(([t, p]) => `${JSON.stringify(t)} ${share(p)}`)].join("\n");
}

function Tokens({ list }: { list: Any[] }) {
  return (
    <>
      <p class="dim">{plural(list.length, "token")}</p>
      <div class="plain tokens">
        {list.map((t, i) => (
          <span key={i} class={`token ${i % 2 ? "fair" : "sure"}`} title={`${t.id ?? t}`}>
            {visible(String(t.piece ?? t))}
          </span>
        ))}
      </div>
    </>
  );
}

function Cosines({ list, texts }: { list: number[][]; texts: string[] }) {
  const dot = (a: number[], b: number[]) => a.reduce((s, x, i) => s + x * (b[i] ?? 0), 0);
  const cos = (a: number[], b: number[]) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b) || 1);
  return (
    <>
      <p class="dim">
        {plural(list.length, "vector")} of {list[0]?.length ?? 0}; how alike they are:
      </p>
      <table class="rows matrix">
        <thead>
          <tr>
            <th>
              <span class="offscreen">Text</span>
            </th>
            {list.map((_, i) => (
              <th key={i}>{i + 1}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {list.map((a, i) => (
            <tr key={i}>
              <th scope="row" class="clip" title={texts[i]}>
                {i + 1} {texts[i]}
              </th>
              {list.map((b, k) => (
                <td key={k}>{cos(a, b).toFixed(3)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
