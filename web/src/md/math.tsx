/** A formula. KaTeX comes when the first one is met; until then, and where it cannot read one, the source stands there. */
import { useEffect, useRef, useState } from "preact/hooks";

declare const MATH_CSS: string;

type Katex = { render(tex: string, at: HTMLElement, options: object): void };
let loading: Promise<Katex> | null = null;

function load(): Promise<Katex> {
  if (loading) return loading;
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = new URL(MATH_CSS, import.meta.url).href;
  document.head.append(link);
  loading = import("katex").then((m) => m.default as Katex);
  return loading;
}

export function Formula({ text, display }: { text: string; display: boolean }) {
  const at = useRef<HTMLSpanElement>(null);
  const [drawn, setDrawn] = useState(false);
  useEffect(() => {
    let live = true;
    load()
      .then((katex) => {
        if (!live || !at.current) return;
        katex.render(text, at.current, {
          displayMode: display,
          throwOnError: true,
          trust: false,
          strict: false,
          maxSize: 20,
          maxExpand: 200,
        });
        setDrawn(true);
      })
      .catch(() => {});
    return () => {
      live = false;
    };
  }, [text, display]);
  return (
    <span class={display ? "formula display" : "formula"}>
      <span ref={at} />
      {!drawn && <code>{text}</code>}
    </span>
  );
}
