import { useState } from "preact/hooks";
import { copyText } from "../lib/clipboard";

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    setSaid((await copyText(text)) ? "Copied" : "Not copied");
    setTimeout(() => setSaid(""), 1500);
  };
  return (
    <button type="button" class="quiet" onClick={copy} aria-label={label}>
      <span aria-live="polite">{said || "Copy"}</span>
    </button>
  );
}
