/** An answer as Markdown: finished ones are read whole, one that grows by its tail. */
import { useMemo, useRef } from "preact/hooks";
import { Block } from "./block";
import { lex } from "./lexer";
import { GrowingMarkdown } from "./tail";

export function Markdown({ text, growing }: { text: string; growing: boolean }) {
  return growing ? <Growing text={text} /> : <Whole text={text} />;
}

function Whole({ text }: { text: string }) {
  const tokens = useMemo(() => lex(text), [text]);
  return (
    <div class="prose">
      {tokens.map((t, i) => (
        <Block key={i} token={t} />
      ))}
    </div>
  );
}

function Growing({ text }: { text: string }) {
  const state = useRef(new GrowingMarkdown());
  state.current.update(text);
  const { frozen, tail } = state.current;
  return (
    <div class="prose growing">
      {frozen.map((t, i) => (
        <Block key={i} token={t} />
      ))}
      {tail.map((t, i) => (
        <Block key={frozen.length + i} token={t} />
      ))}
    </div>
  );
}
