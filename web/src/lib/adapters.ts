/** Adapters of the models that are here, as names that a request may give: base+name. */
import { computed, effect, signal } from "@preact/signals";
import { get } from "./api";
import { link, type ModelStat, models } from "./server";

export interface Adapter {
  /** base+name */
  id: string;
  parent: string;
}

const list = signal<Adapter[]>([]);
export const adaptersOf = (model: string) => list.value.filter((a) => a.parent === baseOf(model));
/** Without the base. */
export const shortName = (a: Adapter) => a.id.slice(a.parent.length + 1);

export const baseOf = (name: string) => list.value.find((a) => a.id === name)?.parent ?? name;
/** What is known of a model, or of the one that an adapter stands on. */
export const statOf = (name: string): ModelStat | undefined => models.value.find((m) => m.name === baseOf(name));

/** As one text, which is the same while the names are: figures come each second, and every message shows the names. */
const names = computed(() => models.value.flatMap((m) => [m.name, ...adaptersOf(m.name).map((a) => a.id)]).join("\n"));
/** Every name that can answer, adapters behind their models. */
export const answerers = computed(() => (names.value ? names.value.split("\n") : []));

export function refreshAdapters(): void {
  get<{ data: Partial<Adapter>[] }>("v1/models")
    .then(({ data }) => {
      list.value = data.filter((m): m is Adapter => !!m.id && !!m.parent);
    })
    .catch(() => {}); // without them every model still answers
}

/** The names are asked for when the server appears and when its models change. */
export function keepAdapters(): void {
  const here = computed(() => (link.value === "online" ? models.value.map((m) => m.name).join() : ""));
  effect(() => {
    if (here.value) refreshAdapters();
  });
}
