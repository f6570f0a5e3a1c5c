/** The frame around every page: rail, banner, dialogs. Pages beyond the chat are loaded when they are opened. */
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ChatPage } from "../pages/chat";
import { Ask } from "../ui/ask";
import { Icon } from "../ui/icons";
import { Toasts } from "../ui/toasts";
import { Banner } from "./banner";
import { KeyDialog } from "./keydialog";
import { KeysHelp, MOD, useKeys } from "./keys";
import { Palette, paletteOpen } from "./palette";
import { PAGES, type Page, page, TITLES } from "./router";

const lazy: Record<Exclude<Page, "chat">, () => Promise<ComponentType>> = {
  models: () => import("../pages/models").then((m) => m.ModelsPage),
  playground: () => import("../pages/playground").then((m) => m.PlaygroundPage),
  metrics: () => import("../pages/metrics").then((m) => m.MetricsPage),
  settings: () => import("../pages/settings").then((m) => m.SettingsPage),
  logs: () => import("../pages/logs").then((m) => m.LogsPage),
};
const loaded: Partial<Record<Page, ComponentType>> = { chat: ChatPage };

export function Shell() {
  useKeys();
  const at = page.value;
  useEffect(() => {
    document.title = at === "chat" ? "Hearth" : `${TITLES[at]} · Hearth`;
  }, [at]);
  return (
    <div class="shell">
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        Skip to the page
      </button>
      <Rail at={at} />
      <div class="stage">
        <Banner />
        <main id="main" tabIndex={-1} aria-label={TITLES[at]}>
          <Current at={at} />
        </main>
      </div>
      <Palette />
      <KeysHelp />
      <KeyDialog />
      <Ask />
      <Toasts />
    </div>
  );
}

function Rail({ at }: { at: Page }) {
  return (
    <nav class="rail" aria-label="Pages">
      {PAGES.map((p) => (
        <a key={p} href={`#/${p}`} aria-current={p === at ? "page" : undefined} title={TITLES[p]}>
          <Icon name={p} />
          <span>{TITLES[p]}</span>
        </a>
      ))}
      <button type="button" class="quiet" title={`Commands (${MOD} K)`} onClick={() => (paletteOpen.value = true)}>
        <Icon name="search" />
        <span>Commands</span>
      </button>
    </nav>
  );
}

function Current({ at }: { at: Page }) {
  const [, setTick] = useState(0);
  const [failed, setFailed] = useState("");
  useEffect(() => {
    setFailed("");
    if (loaded[at] || at === "chat") return;
    lazy[at]()
      .then((c) => {
        loaded[at] = c;
        setTick((n) => n + 1);
      })
      .catch(() => setFailed("This page could not be loaded. The server may be gone, or of another version: reload."));
  }, [at]);
  const Found = loaded[at];
  if (Found) return <Found />;
  if (failed) return <p class="empty">{failed}</p>;
  return <div class="skeleton" role="status" aria-label="Loading" />;
}
