/** The page's side of the highlighting worker. Without a worker, or for a language it does not know, code stays plain. */
declare const WORKER_FILE: string;

/** A class (or "") and the text that has it. */
export type Span = [string, string];

interface TrustedUrls {
  createPolicy(name: string, rules: { createScriptURL(url: string): string }): { createScriptURL(url: string): string };
}

let worker: Worker | null | undefined;
let next = 0;
const asked = new Map<number, (spans: Span[] | null) => void>();
const MAX_CODE = 200_000;

function open(): Worker | null {
  try {
    const url = new URL(WORKER_FILE, import.meta.url).href;
    const trusted = (globalThis as { trustedTypes?: TrustedUrls }).trustedTypes;
    const checked = trusted?.createPolicy("hearth", { createScriptURL: (u) => u }).createScriptURL(url) ?? url;
    const made = new Worker(checked, { type: "module" });
    made.onmessage = (e: MessageEvent<{ id: number; spans: Span[] | null }>) => {
      asked.get(e.data.id)?.(e.data.spans);
      asked.delete(e.data.id);
    };
    return made;
  } catch {
    return null;
  }
}

export function highlight(text: string, lang: string): Promise<Span[] | null> {
  worker ??= open();
  if (!worker || text.length > MAX_CODE) return Promise.resolve(null);
  const id = next++;
  worker.postMessage({ id, text, lang });
  return new Promise((tell) => asked.set(id, tell));
}
