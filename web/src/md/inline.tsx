/** Inline tokens as nodes: every text is a text node, every address passes safeUrl. */
import type { ComponentChild } from "preact";
import type { MathToken, Token, Tokens } from "./lexer";
import { Formula } from "./math";
import { decode, htmlAs, safeUrl, visible } from "./safe";

const MAX_DEPTH = 24;

export function Inline({ tokens, depth = 0 }: { tokens?: Token[]; depth?: number }): ComponentChild {
  if (!tokens) return null;
  if (depth > MAX_DEPTH) return tokens.map((t) => t.raw).join("");
  return tokens.map((t, i) => <One key={i} token={t} depth={depth} />);
}

function One({ token, depth }: { token: Token; depth: number }): ComponentChild {
  const inner = <Inline tokens={(token as { tokens?: Token[] }).tokens} depth={depth + 1} />;
  switch (token.type) {
    case "strong":
      return <strong>{inner}</strong>;
    case "em":
      return <em>{inner}</em>;
    case "del":
      return <del>{inner}</del>;
    case "codespan":
      return <code>{visible(decode((token as Tokens.Codespan).text))}</code>;
    case "br":
      return <br />;
    case "link":
      return <Link href={(token as Tokens.Link).href}>{inner}</Link>;
    case "image":
      return (
        <Link href={(token as Tokens.Image).href}>image: {visible((token as Tokens.Image).text || "no title")}</Link>
      );
    case "html":
      return htmlAs(token.raw);
    case "math":
    case "mathInline":
      return <Formula text={(token as MathToken).text} display={(token as MathToken).display} />;
    case "checkbox":
      return null;
    case "text":
      if ((token as Tokens.Text).tokens?.length) return inner;
      return visible(decode((token as Tokens.Text).text));
    default:
      return visible(decode((token as { text?: string }).text ?? token.raw));
  }
}

function Link({ href, children }: { href: string; children: ComponentChild }) {
  const url = safeUrl(href);
  if (!url) {
    return (
      <span class="dead-link" title="Not followed: only http, https and mailto are">
        {children} ({visible(href.slice(0, 200))})
      </span>
    );
  }
  return (
    <a href={url} target="_blank" rel="noopener noreferrer nofollow" title={url}>
      {children}
    </a>
  );
}
