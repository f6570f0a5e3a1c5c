/** A search of the hub: the one question of this page that goes to another machine, and only when it is asked. */
import { useState } from "preact/hooks";
import { get, post } from "../lib/api";
import { count } from "../lib/format";
import { complain, note } from "../ui/toasts";

interface Hit {
  repository: string;
  downloads: number;
  gguf: boolean;
  mlx: boolean;
  safetensors: boolean;
  modified: string;
}

const formOf = (h: Hit) => (h.gguf ? "GGUF" : h.mlx ? "MLX" : h.safetensors ? "safetensors" : "");

const pull = (repository: string) =>
  post("v1/pulls", { model: `hf.co/${repository}` })
    .then(() => note(`Pulling ${repository}`))
    .catch(complain);

export function Hub() {
  const [words, setWords] = useState("");
  const [hits, setHits] = useState<Hit[] | null>(null);
  const [busy, setBusy] = useState(false);
  const [why, setWhy] = useState("");
  const search = async (e: Event) => {
    e.preventDefault();
    setBusy(true);
    setWhy("");
    try {
      setHits((await get<{ data: Hit[] }>(`v1/hub?q=${encodeURIComponent(words.trim())}`)).data);
    } catch (error) {
      setHits(null);
      setWhy((error as Error).message);
    }
    setBusy(false);
  };
  return (
    <section aria-label="Hub">
      <form class="row wrap section-head" onSubmit={search}>
        <h2>Hugging Face</h2>
        <input
          class="narrow"
          aria-label="Words for the hub"
          placeholder="Words"
          maxLength={200}
          value={words}
          onInput={(e) => setWords(e.currentTarget.value)}
        />
        <button type="submit" disabled={busy || !words.trim()}>
          {busy ? "Searching" : "Search the hub"}
        </button>
      </form>
      {why && (
        <p class="problem" role="alert">
          {why}
        </p>
      )}
      {hits?.length === 0 && <p class="empty">The hub has nothing for these words.</p>}
      {!!hits?.length && <Hits list={hits} />}
    </section>
  );
}

function Hits({ list }: { list: Hit[] }) {
  return (
    <table class="rows">
      <thead>
        <tr>
          <th>Repository</th>
          <th class="wide-only">Downloads</th>
          <th>Form</th>
          <th class="wide-only">Changed</th>
          <th>
            <span class="offscreen">Pull</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {list.map((h) => (
          <tr key={h.repository}>
            <td class="breaks">{h.repository}</td>
            <td class="wide-only">{count(h.downloads)}</td>
            <td class="dim">{formOf(h)}</td>
            <td class="dim wide-only">{h.modified}</td>
            <td class="end">
              <button type="button" aria-label={`Pull ${h.repository}`} onClick={() => pull(h.repository)}>
                Pull
              </button>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
