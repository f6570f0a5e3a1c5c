/** Markdown as tokens: marked's lexer with math beside it. Nothing here makes HTML. */
import { Marked, type Token, type Tokens } from "marked";

export type { Token, Tokens };

export interface MathToken {
  type: "math";
  raw: string;
  text: string;
  display: boolean;
}

const inlineRules = [/^\$\$([^$\n]+?)\$\$/, /^\\\(([^\n]+?)\\\)/, /^\$(?!\s)([^$\n]*?[^\s\\$])\$(?!\d)/];
const blockRules = [/^\$\$[ \t]*\n?([\s\S]+?)\n?[ \t]*\$\$[ \t]*(?:\n+|$)/, /^\\\[\s*([\s\S]+?)\s*\\\][ \t]*(?:\n+|$)/];

function match(rules: RegExp[], src: string, display: boolean): MathToken | undefined {
  for (const rule of rules) {
    const found = rule.exec(src);
    if (found?.[1])
      return { type: "math", raw: found[0], text: found[1], display: display || found[0].startsWith("$$") };
  }
  return undefined;
}

const first = (src: string, pattern: RegExp) => {
  const at = src.search(pattern);
  return at < 0 ? undefined : at;
};

const parser = new Marked({
  gfm: true,
  extensions: [
    {
      name: "math",
      level: "block",
      start: (src) => first(src, /(^|\n)(\$\$|\\\[)/),
      tokenizer: (src) => match(blockRules, src, true),
    },
    {
      name: "mathInline",
      level: "inline",
      start: (src) => first(src, /\$|\\\(/),
      tokenizer: (src) => match(inlineRules, src, false),
    },
  ],
});

export const lex = (text: string): Token[] => parser.lexer(text);
