/** Block tokens as nodes. A frozen token keeps its identity, so its nodes are made once. */
import { type ComponentChild, memo } from "../ui/memo";
import { CodeBlock } from "./code";
import { Inline } from "./inline";
import type { MathToken, Token, Tokens } from "./lexer";
import { Formula } from "./math";
import { htmlAs, visible } from "./safe";

const MAX_DEPTH = 24;
const MAX_ROWS = 500;

export const Block = memo(function Block({ token, depth = 0 }: { token: Token; depth?: number }): ComponentChild {
  if (depth > MAX_DEPTH) return <p>{visible(token.raw)}</p>;
  switch (token.type) {
    case "heading":
      return <Heading token={token as Tokens.Heading} />;
    case "paragraph":
    case "text":
      return <Paragraph token={token as Tokens.Paragraph} />;
    case "code": {
      const code = token as Tokens.Code & { open?: boolean };
      return <CodeBlock text={code.text} lang={code.lang ?? ""} open={code.open ?? false} />;
    }
    case "blockquote":
      return (
        <blockquote>
          <Blocks tokens={(token as Tokens.Blockquote).tokens} depth={depth + 1} />
        </blockquote>
      );
    case "list":
      return <List token={token as Tokens.List} depth={depth} />;
    case "table":
      return <Table token={token as Tokens.Table} />;
    case "hr":
      return <hr />;
    case "math":
      return <Formula text={(token as MathToken).text} display />;
    case "html":
      return <p class="literal">{htmlAs(token.raw)}</p>;
    case "space":
    case "def":
      return null;
    default:
      return <p>{visible(token.raw)}</p>;
  }
});

export function Blocks({ tokens, depth = 0 }: { tokens: Token[]; depth?: number }): ComponentChild {
  return tokens.map((t, i) => <Block key={i} token={t} depth={depth} />);
}

/** Headings of an answer stand below those of the page. */
function Heading({ token }: { token: Tokens.Heading }) {
  const Tag = `h${Math.min(6, token.depth + 2)}` as "h3";
  return (
    <Tag class={`md-h${token.depth}`}>
      <Inline tokens={token.tokens} />
    </Tag>
  );
}

function Paragraph({ token }: { token: Tokens.Paragraph }) {
  return <p>{token.tokens ? <Inline tokens={token.tokens} /> : visible(token.raw)}</p>;
}

function List({ token, depth }: { token: Tokens.List; depth: number }) {
  const items = token.items.map((item, i) => <Item key={i} item={item} depth={depth} />);
  return token.ordered ? <ol start={Number(token.start) || 1}>{items}</ol> : <ul>{items}</ul>;
}

const Item = memo(function Item({ item, depth }: { item: Tokens.ListItem; depth: number }): ComponentChild {
  const rest = item.tokens.filter((t) => t.type !== "checkbox");
  const tokens = rest.map((t, i) =>
    t.type === "text" ? (
      <Inline key={i} tokens={(t as Tokens.Text).tokens ?? [t]} />
    ) : (
      <Block key={i} token={t} depth={depth + 1} />
    ),
  );
  if (!item.task) return <li>{tokens}</li>;
  return (
    <li class="task">
      <span aria-hidden="true">{item.checked ? "☑" : "☐"}</span>
      <span class="offscreen">{item.checked ? "done:" : "to do:"}</span> {tokens}
    </li>
  );
});

function Table({ token }: { token: Tokens.Table }) {
  const rows = token.rows.slice(0, MAX_ROWS);
  const cell = (c: Tokens.TableCell, i: number, Tag: "th" | "td") => (
    <Tag key={i} class={c.align ? `align-${c.align}` : undefined}>
      <Inline tokens={c.tokens} />
    </Tag>
  );
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached by keyboard
    <div class="table-scroll" tabIndex={0} role="region" aria-label="Table">
      <table>
        <thead>
          <tr>{token.header.map((c, i) => cell(c, i, "th"))}</tr>
        </thead>
        <tbody>
          {rows.map((row, r) => (
            <tr key={r}>{row.map((c, i) => cell(c, i, "td"))}</tr>
          ))}
        </tbody>
      </table>
      {token.rows.length > MAX_ROWS && <p class="dim">{token.rows.length - MAX_ROWS} more rows; Copy gives all.</p>}
    </div>
  );
}
