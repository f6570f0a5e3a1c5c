/** Export, import and wipe of the chats in this browser. */
import { useState } from "preact/hooks";
import { exportText, importText } from "../chat/exchange";
import { chats, loadChats, show } from "../chat/store";
import { forgetServer } from "../chat/sync";
import { saveFile } from "../lib/clipboard";
import * as db from "../lib/db";
import { plural } from "../lib/format";
import { prefs, setPrefs } from "../lib/prefs";
import { complain, note } from "../ui/toasts";

export function ChatData() {
  const [sure, setSure] = useState(false);
  const take = async (file?: File) => {
    if (!file) return;
    try {
      const n = await importText(await file.text());
      await loadChats();
      note(`${plural(n, "chat")} imported`);
    } catch (why) {
      complain(why);
    }
  };
  const save = async () => saveFile(`hearth-chats-${new Date().toISOString().slice(0, 10)}.json`, await exportText());
  const wipe = async () => {
    const copies = prefs.value.serverChats;
    forgetServer();
    await db.wipe();
    await show(null);
    await loadChats();
    setSure(false);
    note(`All chats were removed from this browser${copies ? "; their copies on the server stay" : ""}`);
  };
  return (
    <>
      <p class="dim">
        {plural(chats.value.length, "chat")}, kept in this browser
        {prefs.value.serverChats ? " and on the server" : " only"}.
      </p>
      <label class="check">
        <input
          type="checkbox"
          checked={prefs.value.serverChats}
          onInput={(e) => setPrefs({ serverChats: e.currentTarget.checked })}
        />
        Keep them on the server, too, for other browsers with the same key
      </label>
      <div class="row wrap">
        <button type="button" onClick={() => save().catch(complain)}>
          Export all
        </button>
        <label class="button">
          Import
          <input
            type="file"
            accept="application/json,.json"
            class="offscreen"
            aria-label="Import chats"
            onChange={(e) => take(e.currentTarget.files?.[0])}
          />
        </label>
        {sure ? (
          <button type="button" class="danger" onClick={() => wipe().catch(complain)}>
            Really remove all chats
          </button>
        ) : (
          <button type="button" onClick={() => setSure(true)}>
            Remove all
          </button>
        )}
      </div>
    </>
  );
}
