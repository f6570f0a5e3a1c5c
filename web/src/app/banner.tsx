/** The line that says the server is away, loading or draining. */
import { useEffect, useState } from "preact/hooks";
import { percent } from "../lib/format";
import { busy, link, models, reconnect, retryAt } from "../lib/server";

export function Banner() {
  const [now, setNow] = useState(Date.now());
  const off = link.value === "offline";
  useEffect(() => {
    if (!off) return;
    const t = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(t);
  }, [off]);
  const loading = models.value.find((m) => m.state === "loading");
  if (off) {
    const wait = Math.max(0, Math.ceil((retryAt.value - now) / 1000));
    return (
      <div class="banner warn" role="alert">
        <span>
          {busy.value ? "The server is starting or shutting down." : "The server does not answer."} Chats stay readable
          {wait ? `; next try in ${wait} s` : ""}.
        </span>
        <button type="button" class="link" onClick={reconnect}>
          Try now
        </button>
      </div>
    );
  }
  if (!loading) return null;
  return (
    <div class="banner" role="status">
      Loading {loading.name}
      {loading.load_fraction !== undefined && ` · ${percent(loading.load_fraction)}`}
      <progress value={loading.load_fraction ?? undefined} max={1} aria-label={`Loading ${loading.name}`} />
    </div>
  );
}
