/** Five minutes of the server's figures, kept since the page was opened: differences of what /v1/stats counts. */
import { signal } from "@preact/signals";
import type { Bucket } from "./quantile";
import { eachSecond, type Stats } from "./server";

const KEPT = 300;

export interface Point {
  at: number;
  generated: number;
  prompt: number;
  batch: number;
  running: number;
  waiting: number;
  pages: number;
  memory: number;
  connections: number;
  /** Of the tokens written: those that speculation had guessed. */
  guessed: number;
  /** Of the time to the first token, since the server began. */
  first: Bucket[];
}

export const points = signal<Point[]>([]);
let last: { s: Stats; at: number } | null = null;

function between(s: Stats, then: { s: Stats; at: number }, at: number): Point {
  const per = (now: number, before: number) => Math.max(0, (now - before) / (at - then.at));
  const steps = s.steps - then.s.steps;
  return {
    at,
    generated: per(s.tokens_generated, then.s.tokens_generated),
    prompt: per(s.prompt_tokens - s.prompt_tokens_cached, then.s.prompt_tokens - then.s.prompt_tokens_cached),
    batch: steps > 0 ? (s.tokens_evaluated - then.s.tokens_evaluated) / steps : 0,
    running: s.running,
    waiting: s.waiting,
    pages: s.kv_pages_total ? 1 - s.kv_pages_unused / s.kv_pages_total : 0,
    memory: s.resident_bytes + s.models.reduce((sum, m) => sum + (m.memory_bytes ?? 0), 0),
    connections: s.connections,
    guessed: per(s.tokens_drafted_accepted ?? 0, then.s.tokens_drafted_accepted ?? 0),
    first: s.first_token_seconds.buckets ?? [],
  };
}

export function keepHistory(): void {
  eachSecond((s) => {
    const at = Date.now() / 1000;
    if (last && s.uptime_seconds < last.s.uptime_seconds) last = null; // another server
    if (last && at > last.at) points.value = [...points.value.slice(1 - KEPT), between(s, last, at)];
    last = { s, at };
  });
}
