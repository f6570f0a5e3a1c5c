/** An answer as Markdown: one that grows is read by its tail; at its end it is read whole, and what was right stays. */
import { useMemo, useRef } from "preact/hooks";
import { Block } from "./block";
import type { Token } from "./lexer";
import { finish, GrowingMarkdown } from "./tail";

export function Markdown({ text, growing }: { text: string; growing: boolean }) {
  const state = useRef<GrowingMarkdown | null>(null);
  const tokens = useMemo<Token[]>(() => {
    if (!growing) return finish(text, state.current);
    state.current ??= new GrowingMarkdown();
    state.current.update(text);
    return [...state.current.frozen, ...state.current.tail];
  }, [text, growing]);
  return (
    <div class="prose">
      {tokens.map((t, i) => (
        <Block key={i} token={t} />
      ))}
    </div>
  );
}
