/** Adapters of a model: chat with one, and the weight each has in requests that name none. */
import { useEffect, useState } from "preact/hooks";
import { adaptersOf, shortName } from "../lib/adapters";
import { get, post } from "../lib/api";
import { complain, note } from "../ui/toasts";

interface Weight {
  id: number;
  name: string;
  scale: number;
}

export function Adapters({ name, onChat }: { name: string; onChat: (model: string) => void }) {
  const list = adaptersOf(name);
  const key = list.map((a) => a.id).join();
  const [weights, setWeights] = useState<Weight[]>([]);
  const path = `lora-adapters?model=${encodeURIComponent(name)}`;
  useEffect(() => {
    if (key) get<Weight[]>(path).then(setWeights).catch(complain);
  }, [key]);
  if (!list.length) return null;
  const set = async (id: number, scale: number) => {
    const all = weights.map((w) => ({ id: w.id, scale: w.id === id ? scale : w.scale })).filter((w) => w.scale !== 0);
    try {
      setWeights(await post<Weight[]>(path, all));
      note("Weights of the adapters saved");
    } catch (why) {
      complain(why);
    }
  };
  const weightOf = (short: string) => weights.find((w) => w.name === short);
  return (
    <section aria-label="Adapters">
      <h3>Adapters</h3>
      <table class="rows">
        <thead>
          <tr>
            <th>Name</th>
            <th>Weight unless named</th>
            <th>
              <span class="offscreen">Chat</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {list.map((a) => {
            const weight = weightOf(shortName(a));
            return (
              <tr key={a.id}>
                <td class="breaks">{shortName(a)}</td>
                <td>
                  <input
                    type="number"
                    step={0.1}
                    min={-1000}
                    max={1000}
                    aria-label={`Weight of ${shortName(a)}`}
                    disabled={!weight}
                    value={weight?.scale ?? 0}
                    onChange={(e) => weight && set(weight.id, Number(e.currentTarget.value) || 0)}
                  />
                </td>
                <td class="end">
                  <button type="button" aria-label={`Chat with ${a.id}`} onClick={() => onChat(a.id)}>
                    Chat
                  </button>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}
