/** What holds on the server, where it came from, and whether a change needs a restart. */
import { useEffect, useState } from "preact/hooks";
import { get } from "../lib/api";

interface Setting {
  key: string;
  value: unknown;
  origin: string;
  where: string | null;
  help: string;
  needs_restart: boolean;
}

export function ServerSettings() {
  const [list, setList] = useState<Setting[] | null>(null);
  const [why, setWhy] = useState("");
  const [words, setWords] = useState("");
  const [changed, setChanged] = useState(false);
  useEffect(() => {
    get<{ data: Setting[] }>("v1/config")
      .then((c) => setList(c.data))
      .catch((e: Error) => setWhy(e.message));
  }, []);
  if (why) return <p class="problem">{why}</p>;
  if (!list) return <p class="dim">Reading</p>;
  const found = list.filter(
    (s) => (!changed || s.origin !== "default") && `${s.key} ${s.help}`.toLowerCase().includes(words.toLowerCase()),
  );
  return (
    <>
      <p class="dim">
        The server reads these from flags, HEARTH_* variables and server.yaml; Check tries a new file before you put it
        there.
      </p>
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
          </tr>
        </thead>
        <tbody>
          {found.map((s) => (
            <tr key={s.key}>
              <td>
                <span class="mono">{s.key}</span>
                <div class="dim small">{s.help}</div>
              </td>
              <td class="mono">{show(s.value)}</td>
              <td class="wide-only">{s.where ?? s.origin}</td>
              <td class="dim wide-only">{s.needs_restart ? "at a restart" : "on SIGHUP"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

const show = (v: unknown) => (v === null || v === undefined ? "unset" : typeof v === "string" ? v : JSON.stringify(v));
