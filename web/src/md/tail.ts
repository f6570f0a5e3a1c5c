/**
 * Markdown that grows. All blocks but the last three are frozen: a later character cannot change them, so only the rest
 * is read again at a flush. An open code fence is not read at all until it closes. What a frozen block cannot know (a
 * link whose address stands at the end) the full parse of the finished answer puts right.
 */
import { lex, type Token } from "./lexer";

const KEPT = 3;
const FENCE = /^ {0,3}(`{3,}|~{3,})[^\n]*(?:\n|$)/;

export class GrowingMarkdown {
  frozen: Token[] = [];
  tail: Token[] = [];
  private at = 0;

  /** text must begin with what was given before. */
  update(text: string): void {
    const rest = text.slice(this.at);
    const open = openFence(rest);
    if (open) {
      this.tail = [open];
      return;
    }
    const tokens = lex(rest);
    const keep = Math.max(0, tokens.length - KEPT);
    for (let i = 0; i < keep; i++) {
      this.frozen.push(tokens[i]!);
      this.at += tokens[i]!.raw.length;
    }
    if (keep && text.slice(this.at).length !== rest.length - rawLength(tokens, keep)) this.reset(text);
    else this.tail = tokens.slice(keep);
  }

  private reset(text: string): void {
    this.frozen = [];
    this.at = 0;
    this.tail = lex(text);
  }
}

/** The whole text, read at once. Blocks that grew to the same keep their identity, so nothing is drawn again for them. */
export function finish(text: string, grown: GrowingMarkdown | null): Token[] {
  const tokens = lex(text);
  if (!grown || tokens.some((t) => t.type === "def")) return tokens;
  const before = [...grown.frozen, ...grown.tail];
  return tokens.map((t, i) =>
    before[i]?.raw === t.raw && before[i]?.type === t.type && !("open" in before[i]!) ? before[i]! : t,
  );
}

const rawLength = (tokens: Token[], n: number) => tokens.slice(0, n).reduce((sum, t) => sum + t.raw.length, 0);

function openFence(text: string): Token | null {
  const begin = FENCE.exec(text);
  if (!begin) return null;
  const mark = begin[1]!;
  const body = text.slice(begin[0].length);
  const close = new RegExp(`(^|\\n) {0,3}${mark[0] === "`" ? "`" : "~"}{${mark.length},}[ \\t]*(\\n|$)`);
  if (close.test(body)) return null;
  const lang = begin[0].trim().slice(mark.length).trim();
  return { type: "code", raw: text, lang, text: body, open: true } as Token;
}
