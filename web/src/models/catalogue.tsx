/** Well-known models and what they need of this machine. */
import { useEffect, useState } from "preact/hooks";
import { get, post } from "../lib/api";
import { bytes, params } from "../lib/format";
import { complain, note } from "../ui/toasts";

interface Known {
  name: string;
  family: string;
  parameters: number;
  size: number;
  context: number;
  memory_4k: number;
  memory_32k: number;
  fits: boolean | null;
  here: boolean;
  capabilities: string[];
}

export function Catalogue() {
  const [list, setList] = useState<Known[]>([]);
  const [free, setFree] = useState(0);
  const [words, setWords] = useState("");
  const [fitting, setFitting] = useState(true);
  useEffect(() => {
    get<{ data: Known[]; disk_free?: number }>("v1/catalogue")
      .then((c) => {
        setList(c.data);
        setFree(c.disk_free ?? 0);
      })
      .catch(() => {});
  }, []);
  const found = list.filter(
    (k) =>
      (!fitting || k.fits !== false) &&
      words
        .toLowerCase()
        .split(/\s+/)
        .every((w) => `${k.name} ${k.family} ${k.capabilities.join(" ")}`.toLowerCase().includes(w)),
  );
  const pull = (name: string) =>
    post("v1/pulls", { model: name })
      .then(() => note(`Pulling ${name}`))
      .catch(complain);
  return (
    <section aria-label="Catalogue">
      <div class="row wrap section-head">
        <h2>Well-known models</h2>
        {free > 0 && <span class="dim">{bytes(free)} of disk free</span>}
        <input
          class="narrow"
          aria-label="Filter the catalogue"
          placeholder="Filter"
          value={words}
          onInput={(e) => setWords(e.currentTarget.value)}
        />
        <label class="check">
          <input type="checkbox" checked={fitting} onInput={(e) => setFitting(e.currentTarget.checked)} />
          only what fits
        </label>
      </div>
      <table class="rows">
        <thead>
          <tr>
            <th>Name</th>
            <th class="wide-only">Parameters</th>
            <th>Download</th>
            <th class="wide-only">Memory at 4k</th>
            <th class="wide-only">at 32k</th>
            <th class="wide-only">Can</th>
            <th>
              <span class="offscreen">Pull</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {found.map((k) => (
            <tr key={k.name}>
              <td>{k.name}</td>
              <td class="wide-only">{params(k.parameters)}</td>
              <td>{bytes(k.size)}</td>
              <td class="wide-only">{bytes(k.memory_4k)}</td>
              <td class="wide-only">{bytes(k.memory_32k)}</td>
              <td class="dim wide-only">{k.capabilities.join(", ")}</td>
              <td class="end">
                {k.here ? (
                  <span class="dim">here</span>
                ) : (
                  <button type="button" aria-label={`Pull ${k.name}`} onClick={() => pull(k.name)}>
                    Pull
                  </button>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {!found.length && list.length > 0 && <p class="empty">None of the well-known models.</p>}
    </section>
  );
}
