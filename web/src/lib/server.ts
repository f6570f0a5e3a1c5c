/**
 * What the server is doing. One event stream per visible page (a browser has six connections per host), read by fetch
 * because EventSource sends no key. When it breaks, it is tried again after a growing pause; chats stay readable.
 */
import { computed, effect, signal } from "@preact/signals";
import { ApiError, apiKey, call, get } from "./api";
import type { Bucket } from "./quantile";
import { readEvents } from "./sse";

export interface ModelStat {
  name: string;
  state: "loaded" | "loading" | "unloaded";
  file_bytes: number;
  active: number;
  memory_bytes?: number;
  load_fraction?: number;
  load_seconds?: number;
  quarantined?: boolean;
  capabilities?: string[];
  context_length?: number;
  expires_seconds?: number | null;
}

export interface Quantiles {
  count: number;
  mean: number;
  p50: number;
  p99: number;
  buckets?: Bucket[];
}

export interface Stats {
  uptime_seconds: number;
  connections: number;
  running: number;
  waiting: number;
  paused: number;
  prompt_tokens: number;
  prompt_tokens_cached: number;
  tokens_generated: number;
  steps: number;
  tokens_evaluated: number;
  tokens_drafted?: number;
  tokens_drafted_accepted?: number;
  preemptions: number;
  kv_pages_total: number;
  kv_pages_unused: number;
  kv_pages_cached: number;
  resident_bytes: number;
  request_seconds: Quantiles;
  first_token_seconds: Quantiles;
  inter_token_seconds: Quantiles;
  responses?: Record<string, number>;
  machine?: { memory_bytes: number; memory_available_bytes: number };
  models: ModelStat[];
}

export interface RequestInfo {
  id: string;
  api: string;
  path: string;
  model?: string;
  state: string;
  key: string | null;
  prompt_tokens: number;
  generated_tokens?: number;
  age_seconds: number;
}

export interface LogLine {
  seq: number;
  time: string;
  level: "debug" | "info" | "warn" | "error";
  module: string;
  message: string;
}

export interface Pull {
  name: string;
  state: "running" | "done" | "failed" | "cancelled";
  status: string;
  total: number;
  completed: number;
  seconds: number;
  error?: string;
}

export type Link = "connecting" | "online" | "offline";
export const link = signal<Link>("connecting");
export const stats = signal<Stats | null>(null);
export const requests = signal<RequestInfo[]>([]);
export const pulls = signal<Pull[]>([]);
export const logs = signal<LogLine[]>([]);
export const version = signal("");
export const retryAt = signal(0);
/** It answers, but not yet or no longer: it is starting or ends. */
export const busy = signal(false);

export const models = computed(() => stats.value?.models ?? []);
export const defaultModel = computed(
  () => models.value.find((m) => m.state === "loaded")?.name ?? models.value[0]?.name ?? "",
);

const MAX_LOGS = 10000;
const onStats: ((s: Stats) => void)[] = [];
export const eachSecond = (tell: (s: Stats) => void) => onStats.push(tell);

/** What the page that is open wants to hear besides the figures. */
export const topics = signal<string[]>([]);

function take(event: string, data: string): void {
  const value = JSON.parse(data);
  if (event === "stats") {
    stats.value = value;
    for (const tell of onStats) tell(value);
  } else if (event === "requests") requests.value = value.data;
  else if (event === "pulls") pulls.value = value.data;
  else if (event === "logs") {
    const last = logs.value.at(-1)?.seq ?? -1;
    const fresh = (value.data as LogLine[]).filter((l) => l.seq > last);
    if (fresh.length) logs.value = [...logs.value, ...fresh].slice(-MAX_LOGS);
  }
}

let current: AbortController | null = null;
let pause = 500;
let timer: ReturnType<typeof setTimeout> | undefined;

async function listen(): Promise<void> {
  clearTimeout(timer);
  current?.abort();
  const own = new AbortController();
  current = own;
  try {
    const wanted = ["stats", "pulls", ...topics.peek()].join(",");
    const answer = await call(`v1/events?topics=${wanted}`, { signal: own.signal });
    if (link.peek() !== "online") logs.value = [];
    link.value = "online";
    pause = 500;
    for await (const e of readEvents(answer.body!)) take(e.event, e.data);
  } catch (why) {
    if (own.signal.aborted) return;
    busy.value = why instanceof ApiError && why.status === 503;
    if (why instanceof ApiError && why.status === 401) {
      link.value = "offline";
      return;
    }
  }
  if (own.signal.aborted) return;
  link.value = "offline";
  retryAt.value = Date.now() + pause;
  timer = setTimeout(listen, pause);
  pause = Math.min(pause * 1.6, 8000);
}

export const reconnect = () => {
  pause = 500;
  listen();
};

/** Starts listening, and pauses while nobody looks. */
export function connect(): void {
  effect(() => {
    topics.value;
    apiKey.value;
    if (!document.hidden) listen();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      clearTimeout(timer);
      current?.abort();
    } else listen();
  });
  get<{ version: string }>("health")
    .then((v) => {
      version.value = v.version;
    })
    .catch(() => {});
}
