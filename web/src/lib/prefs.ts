/** What the user set for this browser. Kept in localStorage; the key is not among it. */
import { effect, signal } from "@preact/signals";

export interface Sampling {
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  repeat_penalty?: number;
  max_tokens?: number;
  seed?: number;
}

export interface ChatSettings extends Sampling {
  system?: string;
  thinking?: "on" | "off";
  effort?: "low" | "medium" | "high";
  thinking_budget?: number;
  format?: "json" | "schema" | "grammar" | "regex";
  format_text?: string;
  stop?: string;
  tools?: string[];
  custom_tools?: string;
  /** Weights of adapters by their names; those of another model's do not count. */
  lora?: Record<string, number>;
}

export interface Preset {
  name: string;
  settings: ChatSettings;
}

export interface Prefs {
  theme: "system" | "light" | "dark";
  enterSends: boolean;
  showFigures: boolean;
  approveTools: boolean;
  model: string;
  listOpen: boolean;
  setupOpen: boolean;
  serverChats: boolean;
  presets: Preset[];
}

const KEY = "hearth.prefs";
const initial: Prefs = {
  theme: "system",
  enterSends: true,
  showFigures: true,
  approveTools: true,
  model: "",
  listOpen: true,
  setupOpen: false,
  serverChats: false,
  presets: [],
};

function load(): Prefs {
  try {
    return { ...initial, ...JSON.parse(localStorage.getItem(KEY) ?? "{}") };
  } catch {
    return initial;
  }
}

export const prefs = signal<Prefs>(load());
export const setPrefs = (change: Partial<Prefs>) => {
  prefs.value = { ...prefs.value, ...change };
};

effect(() => {
  localStorage.setItem(KEY, JSON.stringify(prefs.value));
  const { theme } = prefs.value;
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
});
