/** Requests to the server that this page came from. Paths are relative, so a page behind a prefix asks behind it too. */
import { signal } from "@preact/signals";

export class ApiError extends Error {
  constructor(
    message: string,
    public status: number,
    public param = "",
    public requestId = "",
    public retryAfter = 0,
    public code = "",
  ) {
    super(message);
  }
  get offline() {
    return this.status === 0;
  }
}

const KEY = "hearth.key";
const stored = () => sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
export const apiKey = signal(stored());

/** The dialog that asks for a key, or for the server's token: why it is open, and who waits for it. */
export const keyAsked = signal<{ reason: string; token: boolean } | null>(null);
let waiting: ((ok: boolean) => void)[] = [];

export function setKey(key: string, remember: boolean): void {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
  if (key) (remember ? localStorage : sessionStorage).setItem(KEY, key);
  apiKey.value = key;
}

export function answerKeyDialog(ok: boolean): void {
  keyAsked.value = null;
  const list = waiting;
  waiting = [];
  for (const tell of list) tell(ok);
}

function askForKey(error: ApiError): Promise<boolean> {
  keyAsked.value ??= { reason: error.message, token: error.code === "token_needed" };
  return new Promise((tell) => waiting.push(tell));
}

export const urlOf = (path: string) => new URL(path.replace(/^\//, ""), document.baseURI.replace(/[#?].*$/, "")).href;

async function errorOf(answer: Response): Promise<ApiError> {
  const text = await answer.text().catch(() => "");
  let message = text.slice(0, 300) || answer.statusText;
  let param = "";
  let code = "";
  try {
    const { error } = JSON.parse(text);
    message = typeof error === "string" ? error : (error.message ?? message);
    param = error.param ?? "";
    code = error.code ?? "";
  } catch {
    // not JSON: a proxy's page
  }
  const after = Number(answer.headers.get("Retry-After")) || 0;
  return new ApiError(message, answer.status, param, answer.headers.get("X-Request-Id") ?? "", after, code);
}

/** A fetch that carries the key, asks for one at a 401 and repeats, and throws ApiError for everything that failed. */
export async function call(path: string, init: RequestInit = {}): Promise<Response> {
  for (;;) {
    const headers = new Headers(init.headers);
    if (apiKey.value) headers.set("Authorization", `Bearer ${apiKey.value}`);
    if (typeof init.body === "string") headers.set("Content-Type", "application/json");
    let answer: Response;
    try {
      answer = await fetch(urlOf(path), { ...init, headers, credentials: "omit", cache: "no-store" });
    } catch (why) {
      if (init.signal?.aborted) throw why;
      throw new ApiError("The server does not answer.", 0);
    }
    if (answer.ok) return answer;
    const error = await errorOf(answer);
    if (error.status !== 401 || !(await askForKey(error))) throw error;
  }
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await call(path, { signal })).json()) as T;
}

export async function send<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const answer = await call(path, { method, body: body === undefined ? undefined : JSON.stringify(body), signal });
  const text = await answer.text();
  return (text ? JSON.parse(text) : null) as T;
}

export const post = <T>(path: string, body: unknown, signal?: AbortSignal) => send<T>("POST", path, body, signal);
