/** A code block: its language, a copy button, and colours from the worker once the fence has closed. */
import { useEffect, useState } from "preact/hooks";
import { CopyButton } from "../ui/copy";
import { highlight, type Span } from "./highlight";
import { visible } from "./safe";

export function CodeBlock({ text, lang, open }: { text: string; lang: string; open: boolean }) {
  const name = lang.split(/[\s{,]/)[0] ?? "";
  const [spans, setSpans] = useState<Span[] | null>(null);
  useEffect(() => {
    setSpans(null);
    if (open || !name) return;
    let live = true;
    highlight(text, name).then((found) => live && setSpans(found));
    return () => {
      live = false;
    };
  }, [text, name, open]);
  return (
    <figure class="code">
      <figcaption>
        <span>{visible(name) || "text"}</span>
        <CopyButton text={text} label="Copy code" />
      </figcaption>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached by keyboard */}
      <pre tabIndex={0}>
        <code>
          {spans
            ? spans.map(([kind, part], i) =>
                kind ? (
                  <span key={i} class={`hl-${kind}`}>
                    {part}
                  </span>
                ) : (
                  part
                ),
              )
            : visible(text)}
        </code>
      </pre>
    </figure>
  );
}
