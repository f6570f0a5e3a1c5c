/** Export, import and wipe of the chats in this browser. */
import { useState } from "preact/hooks";
import { exportText, importText } from "../chat/exchange";
import { chats, loadChats, show } from "../chat/store";
import { saveFile } from "../lib/clipboard";
import * as db from "../lib/db";
import { complain, note } from "../ui/toasts";

export function ChatData() {
  const [sure, setSure] = useState(false);
  const take = async (file?: File) => {
    if (!file) return;
    try {
      const n = await importText(await file.text());
      await loadChats();
      note(`${n} chats imported`);
    } catch (why) {
      complain(why);
    }
  };
  const save = async () => saveFile(`hearth-chats-${new Date().toISOString().slice(0, 10)}.json`, await exportText());
  const wipe = async () => {
    await db.wipe();
    await show(null);
    await loadChats();
    setSure(false);
    note("All chats were removed from this browser");
  };
  return (
    <>
      <p class="dim">{chats.value.length} chats, kept in this browser only.</p>
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
