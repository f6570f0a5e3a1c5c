/** Routes live behind the hash: a page works behind any prefix and the server needs to know none of them. */
import { computed, signal } from "@preact/signals";

export const PAGES = ["chat", "models", "playground", "metrics", "settings", "logs"] as const;
export type Page = (typeof PAGES)[number];
export const TITLES: Record<Page, string> = {
  chat: "Chat",
  models: "Models",
  playground: "Playground",
  metrics: "Metrics",
  settings: "Settings",
  logs: "Logs",
};

const read = () => location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
const parts = signal(read());
addEventListener("hashchange", () => {
  parts.value = read();
});

export const page = computed<Page>(() => PAGES.find((p) => p === parts.value[0]) ?? "chat");
export const tail = computed(() => parts.value.slice(1).join("/"));
export const go = (to: string) => {
  location.hash = `#/${to}`;
};
