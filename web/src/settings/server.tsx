/** What holds on the server, where it came from, and a change of server.yaml with a word on when it holds. */
import { useEffect, useState } from "preact/hooks";
import { get, send } from "../lib/api";
import { bytes } from "../lib/format";
import { note } from "../ui/toasts";

interface Setting {
  key: string;
  value: unknown;
  origin: string;
  where: string | null;
  default: string | null;
  help: string;
  needs_restart: boolean;
  can_change: boolean;
  after_restart?: unknown;
}

interface Written {
  path: string;
  data: { key: string; needs_restart: boolean; overridden_by: string | null }[];
}

export function ServerSettings() {
  const [list, setList] = useState<Setting[] | null>(null);
  const [why, setWhy] = useState("");
  const [words, setWords] = useState("");
  const [changed, setChanged] = useState(false);
  const [editing, setEditing] = useState("");
  const read = () =>
    get<{ data: Setting[] }>("v1/config")
      .then((c) => setList(c.data))
      .catch((e: Error) => setWhy(e.message));
  useEffect(() => {
    read();
  }, []);
  if (why) return <p class="problem">{why}</p>;
  if (!list) return <p class="dim">Reading</p>;
  const found = list.filter(
    (s) => (!changed || s.origin !== "default") && `${s.key} ${s.help}`.toLowerCase().includes(words.toLowerCase()),
  );
  const waiting = list.filter((s) => s.after_restart !== undefined).length;
  return (
    <>
      <p class="dim">
        The server reads these from flags, HEARTH_* variables and server.yaml, in this order. Change writes the file;
        its comments stay.
      </p>
      {waiting > 0 && (
        <p class="warn-text" role="status">
          {waiting === 1 ? "One change waits" : `${waiting} changes wait`} for a restart of the server.
        </p>
      )}
      <div class="row wrap">
        <input
          class="narrow"
          data-search
          aria-label="Filter settings"
          placeholder="Filter"
          value={words}
          onInput={(e) => setWords(e.currentTarget.value)}
        />
        <label class="check">
          <input type="checkbox" checked={changed} onInput={(e) => setChanged(e.currentTarget.checked)} />
          only what was set
        </label>
      </div>
      <table class="rows settings">
        <thead>
          <tr>
            <th>Key</th>
            <th>Value</th>
            <th class="wide-only">Origin</th>
            <th class="wide-only">Takes effect</th>
            <th>
              <span class="offscreen">Change</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {found.map((s) => (
            <Row
              key={s.key}
              setting={s}
              editing={editing === s.key}
              onEdit={(on) => setEditing(on ? s.key : "")}
              onDone={() => {
                setEditing("");
                setTimeout(read, 150); // the server reads its file again
              }}
            />
          ))}
          {!found.length && (
            <tr>
              <td colSpan={5} class="dim">
                No setting has these words.
              </td>
            </tr>
          )}
        </tbody>
      </table>
    </>
  );
}

interface RowProps {
  setting: Setting;
  editing: boolean;
  onEdit: (on: boolean) => void;
  onDone: () => void;
}

function Row({ setting: s, editing, onEdit, onDone }: RowProps) {
  return (
    <>
      <tr>
        <td>
          <span class="mono">{s.key}</span>
          <div class="dim small">{s.help}</div>
        </td>
        <td class="mono">
          {show(s.value)}
          {large(s) && <div class="dim small">{bytes(s.value as number)}</div>}
          {s.after_restart !== undefined && <div class="warn-text small">then {show(s.after_restart)}</div>}
        </td>
        <td class="wide-only">{s.where ?? s.origin}</td>
        <td class="dim wide-only">{s.needs_restart ? "at a restart" : "at once"}</td>
        <td class="end nowrap">
          {s.can_change && (
            <button type="button" class="quiet" aria-label={`Change ${s.key}`} onClick={() => onEdit(!editing)}>
              Change
            </button>
          )}
        </td>
      </tr>
      {editing && (
        <tr>
          <td colSpan={5}>
            <ChangeForm setting={s} onCancel={() => onEdit(false)} onDone={onDone} />
          </td>
        </tr>
      )}
    </>
  );
}

/** A word that JSON reads is that value (8080, true, ["a"]); all else is text. */
function meant(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function said(w: Written): string {
  const [one] = w.data;
  if (one?.overridden_by) return `Written to ${w.path}, but ${one.overridden_by} stands above it`;
  return `Written to ${w.path}; ${one?.needs_restart ? "holds after a restart" : "holds now"}`;
}

function ChangeForm({ setting: s, onCancel, onDone }: { setting: Setting; onCancel: () => void; onDone: () => void }) {
  const now = s.after_restart ?? s.value;
  const [text, setText] = useState(now === null ? "" : typeof now === "string" ? now : JSON.stringify(now));
  const [why, setWhy] = useState("");
  const write = async (value: unknown) => {
    setWhy("");
    try {
      note(said(await send<Written>("PUT", "v1/config", { settings: { [s.key]: value } })));
      onDone();
    } catch (error) {
      setWhy((error as Error).message);
    }
  };
  return (
    <form
      class="row wrap"
      onSubmit={(e) => {
        e.preventDefault();
        write(meant(text));
      }}
    >
      <input
        class="narrow mono"
        aria-label={`Value of ${s.key}`}
        autofocus
        aria-invalid={why !== ""}
        placeholder={s.default ?? ""}
        value={text}
        onInput={(e) => setText(e.currentTarget.value)}
        onKeyDown={(e) => e.key === "Escape" && onCancel()}
      />
      <button type="submit" class="primary" disabled={!text.trim()}>
        Write
      </button>
      <button type="button" onClick={() => write(null)}>
        Take out of the file
      </button>
      <button type="button" onClick={onCancel}>
        Cancel
      </button>
      {why && (
        <span class="problem" role="alert">
          {why}
        </span>
      )}
    </form>
  );
}

const large = (s: Setting) => /bytes/.test(s.key) && typeof s.value === "number" && s.value >= 10000;
const show = (v: unknown) => (v === null || v === undefined ? "unset" : typeof v === "string" ? v : JSON.stringify(v));
