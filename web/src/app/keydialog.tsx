/** Asks for the API key when the server wants one; the request that was refused is repeated with it. */
import { useState } from "preact/hooks";
import { answerKeyDialog, apiKey, keyAsked, setKey } from "../lib/api";
import { Dialog } from "../ui/dialog";

export function KeyDialog() {
  return keyAsked.value ? <Ask {...keyAsked.value} /> : null;
}

function Ask({ reason, token }: { reason: string; token: boolean }) {
  const [key, setText] = useState("");
  const [remember, setRemember] = useState(false);
  const wrong = apiKey.value !== "";
  const title = token
    ? "This takes the server's token"
    : wrong
      ? "That key is not known here"
      : "This server wants a key";
  const submit = (e: Event) => {
    e.preventDefault();
    if (!key.trim()) return;
    setKey(key.trim(), remember);
    answerKeyDialog(true);
  };
  return (
    <Dialog label="API key" onClose={() => answerKeyDialog(false)}>
      <form onSubmit={submit} class="stack">
        <h2>{title}</h2>
        <p class="dim">The server said: {reason}</p>
        <label class="field">
          <span>{token ? "Token" : "Key"}</span>
          <input
            type="password"
            autocomplete="off"
            autofocus
            value={key}
            onInput={(e) => setText(e.currentTarget.value)}
          />
        </label>
        <label class="check">
          <input type="checkbox" checked={remember} onInput={(e) => setRemember(e.currentTarget.checked)} />
          Remember it in this browser
        </label>
        <div class="row end">
          <button type="button" onClick={() => answerKeyDialog(false)}>
            Not now
          </button>
          <button type="submit" class="primary" disabled={!key.trim()}>
            {token ? "Use token" : "Use key"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
