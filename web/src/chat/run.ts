/**
 * Answers being written. A run belongs to this module, not to a page: navigation keeps it. Pieces are gathered and shown
 * once a frame (once a second while the page is hidden) and saved each second, so the cost does not grow with the speed.
 */
import { signal } from "@preact/signals";
import { ApiError, call, post } from "../lib/api";
import { readEvents } from "../lib/sse";
import { saveMessage, setLive } from "./store";
import { leaveTail } from "./tails";
import type { Message, ToolCall } from "./types";

export type Phase = "asking" | "waiting" | "prefill" | "writing";

export interface Run {
  message: Message;
  phase: Phase;
  /** Of the prompt. */
  progress?: { total: number; processed: number; cached: number };
  /** While the server is full: when it is asked again. */
  until?: number;
  began: number;
  first?: number;
  thoughtFrom?: number;
  marks: [number, number][];
  tokens: number;
  abort: AbortController;
  requestId: string;
  dirty: boolean;
  saved: number;
}

export const runs = signal<ReadonlyMap<string, Run>>(new Map());
const setRuns = (change: (m: Map<string, Run>) => void) => {
  const next = new Map(runs.value);
  change(next);
  runs.value = next;
};
export const runOf = (chat: string) => [...runs.value.values()].find((r) => r.message.chat === chat);

/** Tokens per second over the last two seconds. */
export function speed(r: Run): number {
  const last = r.marks.at(-1);
  const from = r.marks.find(([t]) => last && last[0] - t <= 2000);
  if (!last || !from || last[0] - from[0] < 50) return 0;
  return ((last[1] - from[1]) * 1000) / (last[0] - from[0]);
}

let scheduled = false;
let lastCost = 0;

function flush(): void {
  scheduled = false;
  const begin = performance.now();
  let moved = false;
  for (const r of runs.value.values()) {
    if (!r.dirty) continue;
    r.dirty = false;
    moved = true;
    r.message = { ...r.message };
    setLive(r.message, r.message.id);
    const persist = begin - r.saved > 1000;
    if (persist) r.saved = begin;
    saveMessage(r.message, persist);
  }
  if (moved) setRuns(() => {});
  lastCost = performance.now() - begin;
}

function schedule(): void {
  if (scheduled) return;
  scheduled = true;
  if (document.hidden) setTimeout(flush, 1000);
  else if (lastCost > 8) setTimeout(() => requestAnimationFrame(flush), lastCost * 3);
  else requestAnimationFrame(flush);
}

addEventListener("pagehide", () => {
  for (const r of runs.value.values()) leaveTail(r.message);
});

interface Delta {
  content?: string;
  reasoning_content?: string;
  tool_calls?: { index: number; id?: string; function?: { name?: string; arguments?: string } }[];
}

function addCalls(m: Message, pieces: Delta["tool_calls"]): void {
  const calls: ToolCall[] = m.tool_calls ? [...m.tool_calls] : [];
  for (const p of pieces ?? []) {
    const old = calls[p.index] ?? { id: p.id ?? "", name: "", arguments: "" };
    calls[p.index] = {
      id: p.id ?? old.id,
      name: old.name + (p.function?.name ?? ""),
      arguments: old.arguments + (p.function?.arguments ?? ""),
    };
  }
  m.tool_calls = calls;
}

function addDelta(r: Run, d: Delta): void {
  const m = r.message;
  const now = performance.now();
  if (d.reasoning_content) {
    r.thoughtFrom ??= now;
    m.reasoning = (m.reasoning ?? "") + d.reasoning_content;
    m.thought_ms = now - r.thoughtFrom;
  }
  if (d.content && !m.content && r.thoughtFrom) m.thought_ms = now - r.thoughtFrom;
  if (d.content) m.content += d.content;
  if (d.tool_calls) addCalls(m, d.tool_calls);
  if ((d.content || d.reasoning_content || d.tool_calls) && r.phase !== "writing") {
    r.phase = "writing";
    r.first ??= now;
  }
}

// biome-ignore lint/suspicious/noExplicitAny: a chunk of the protocol
function addChunk(r: Run, chunk: any): void {
  if (chunk.error)
    throw new ApiError(chunk.error.message ?? "The answer failed.", 500, chunk.error.param ?? "", r.requestId);
  const choice = chunk.choices?.[0];
  if (choice?.delta) addDelta(r, choice.delta);
  if (choice?.finish_reason) r.message.finish = choice.finish_reason;
  const t = chunk.timings;
  if (t?.predicted_n) {
    r.tokens = t.predicted_n;
    r.marks.push([performance.now(), t.predicted_n]);
    if (r.marks.length > 1000) r.marks.splice(0, 500);
  }
  if (chunk.usage) {
    const u = chunk.usage;
    r.message.figures = {
      prompt_n: u.prompt_tokens,
      cached_n: u.prompt_tokens_details?.cached_tokens ?? 0,
      predicted_n: u.completion_tokens,
      total_tokens: u.total_tokens,
      predicted_per_second: t?.predicted_per_second,
      prompt_ms: t?.prompt_ms,
      predicted_ms: t?.predicted_ms,
      draft_n: t?.draft_n,
      draft_right: t?.draft_n_accepted,
      first_ms: r.first ? r.first - r.began : undefined,
    };
  }
}

const PATIENCE = 5;

/** A full server says when to come again; the wait is shown and can be stopped. */
async function wait(r: Run, ms: number): Promise<void> {
  r.phase = "waiting";
  r.until = Date.now() + ms;
  setRuns(() => {});
  const tick = setInterval(() => setRuns(() => {}), 500);
  await new Promise<void>((tell) => {
    const t = setTimeout(tell, ms);
    r.abort.signal.addEventListener("abort", () => {
      clearTimeout(t);
      tell();
    });
  });
  clearInterval(tick);
  r.abort.signal.throwIfAborted();
  r.phase = "asking";
}

async function askPatiently(r: Run, body: object): Promise<Response> {
  for (let left = PATIENCE; ; left--) {
    try {
      return await call("v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal: r.abort.signal });
    } catch (why) {
      const full = why instanceof ApiError && (why.status === 429 || why.status === 503) && why.retryAfter > 0;
      if (!full || left <= 0) throw why;
      await wait(r, Math.min(60, why.retryAfter) * 1000);
    }
  }
}

async function read(r: Run, body: object): Promise<void> {
  const answer = await askPatiently(r, body);
  r.requestId = answer.headers.get("X-Request-Id") ?? "";
  let done = false;
  for await (const e of readEvents(answer.body!)) {
    if (e.event === "prefill_progress") {
      r.phase = r.phase === "writing" ? "writing" : "prefill";
      r.progress = JSON.parse(e.data);
    } else if (e.data === "[DONE]") {
      done = true;
    } else {
      addChunk(r, JSON.parse(e.data));
    }
    r.dirty = true;
    schedule();
  }
  if (!done) throw new ApiError("The connection was cut in the middle of the answer.", 0);
}

/** Writes an answer into message. Resolves when it has ended, however it did; the message then says how. */
export async function start(message: Message, body: object): Promise<Message> {
  const r: Run = {
    message: { ...message, state: "streaming", error: undefined },
    phase: "asking",
    began: performance.now(),
    marks: [],
    tokens: 0,
    abort: new AbortController(),
    requestId: "",
    dirty: false,
    saved: performance.now(),
  };
  setRuns((m) => m.set(message.id, r));
  await saveMessage(r.message);
  try {
    await read(r, body);
    r.message.state = "done";
  } catch (why) {
    fail(r, why);
  }
  setRuns((m) => m.delete(message.id));
  setLive(null, message.id);
  await saveMessage({ ...r.message });
  return r.message;
}

function fail(r: Run, why: unknown): void {
  const m = r.message;
  if (r.abort.signal.aborted) {
    m.state = "stopped";
    return;
  }
  const error = why instanceof ApiError ? why : new ApiError("The connection was cut in the middle of the answer.", 0);
  m.state = error.offline || m.content ? "cut" : "failed";
  const field = error.param && !error.message.startsWith(error.param) ? ` (${error.param})` : "";
  m.error = error.message + field + (error.requestId ? ` [${error.requestId}]` : "");
}

export function stop(r: Run): void {
  r.abort.abort();
  if (r.requestId) post(`v1/requests/${r.requestId}/cancel`, {}).catch(() => {});
}
