/** Settings: of this browser, of the chats in it, and what holds on the server. */
import { useState } from "preact/hooks";
import { apiKey, setKey } from "../lib/api";
import { type Prefs, prefs, setPrefs } from "../lib/prefs";
import { version } from "../lib/server";
import { CheckForm, Doctor } from "../settings/check";
import { ChatData } from "../settings/data";
import { ServerSettings } from "../settings/server";

const TABS = ["Appearance", "Key", "Chats", "Server", "Check", "Doctor"] as const;

export function SettingsPage() {
  const [tab, setTab] = useState<(typeof TABS)[number]>("Appearance");
  return (
    <div class="page">
      <h1 class="page-title">Settings</h1>
      <div class="tabs" role="tablist" aria-label="Settings">
        {TABS.map((t) => (
          <button
            key={t}
            type="button"
            role="tab"
            id={`tab-${t}`}
            aria-selected={t === tab}
            aria-controls="tab-panel"
            onClick={() => setTab(t)}
          >
            {t}
          </button>
        ))}
      </div>
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${tab}`} class="stack panel">
        {tab === "Appearance" && <Appearance />}
        {tab === "Key" && <KeyForm />}
        {tab === "Chats" && <ChatData />}
        {tab === "Server" && <ServerSettings />}
        {tab === "Check" && <CheckForm />}
        {tab === "Doctor" && <Doctor />}
      </div>
      <p class="dim small">Hearth {version.value}</p>
    </div>
  );
}

function Toggle({ name, children }: { name: "enterSends" | "showFigures" | "approveTools"; children: string }) {
  return (
    <label class="check">
      <input
        type="checkbox"
        checked={prefs.value[name]}
        onInput={(e) => setPrefs({ [name]: e.currentTarget.checked })}
      />
      {children}
    </label>
  );
}

function Appearance() {
  return (
    <>
      <label class="field narrow">
        <span>Theme</span>
        <select
          value={prefs.value.theme}
          onChange={(e) => setPrefs({ theme: e.currentTarget.value as Prefs["theme"] })}
        >
          <option value="system">as the system</option>
          <option value="light">light</option>
          <option value="dark">dark</option>
        </select>
      </label>
      <Toggle name="enterSends">Enter sends a message (otherwise Ctrl or ⌘ with Enter)</Toggle>
      <Toggle name="showFigures">Show speed and tokens below answers</Toggle>
      <Toggle name="approveTools">Ask before a tool of this page is run</Toggle>
    </>
  );
}

function KeyForm() {
  const [text, setText] = useState(apiKey.value);
  const [remember, setRemember] = useState(localStorage.getItem("hearth.key") !== null);
  const [said, setSaid] = useState("");
  return (
    <form
      class="stack narrow-form"
      onSubmit={(e) => {
        e.preventDefault();
        setKey(text.trim(), remember);
        setSaid(text.trim() ? "Kept." : "Forgotten.");
      }}
    >
      <p class="dim">
        The key goes out in a header, to this server only. Unless it is remembered it is gone with the tab; it is never
        part of an export.
      </p>
      <label class="field">
        <span>API key</span>
        <input type="password" autocomplete="off" value={text} onInput={(e) => setText(e.currentTarget.value)} />
      </label>
      <label class="check">
        <input type="checkbox" checked={remember} onInput={(e) => setRemember(e.currentTarget.checked)} />
        Remember it in this browser
      </label>
      <div class="row">
        <button type="submit" class="primary">
          Save
        </button>
        <span role="status">{said}</span>
      </div>
    </form>
  );
}
