/** Short notes at the edge: what happened, and a way back. */
import { signal } from "@preact/signals";
import { uid } from "../lib/id";

interface Toast {
  id: string;
  text: string;
  bad?: boolean;
  undo?: () => void;
}

const toasts = signal<Toast[]>([]);
const drop = (id: string) => {
  toasts.value = toasts.value.filter((t) => t.id !== id);
};

function add(toast: Omit<Toast, "id">, ms: number): void {
  const id = uid();
  toasts.value = [...toasts.value.slice(-3), { ...toast, id }];
  setTimeout(() => drop(id), ms);
}

export const note = (text: string) => add({ text }, 4000);
export const complain = (why: unknown) =>
  add({ text: why instanceof Error ? why.message : String(why), bad: true }, 8000);
export const undoable = (text: string, undo: () => void) => add({ text, undo }, 10000);

export function Toasts() {
  return (
    <div class="toasts" role="status">
      {toasts.value.map((t) => (
        <div key={t.id} class={t.bad ? "toast bad" : "toast"}>
          <span>{t.text}</span>
          {t.undo && (
            <button
              type="button"
              class="link"
              onClick={() => {
                t.undo?.();
                drop(t.id);
              }}
            >
              Undo
            </button>
          )}
          <button type="button" class="quiet" aria-label="Dismiss" onClick={() => drop(t.id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
