import assert from "node:assert/strict";
import { test } from "node:test";
import { lex } from "../src/md/lexer";
import { decode, safeUrl } from "../src/md/safe";
import { finish, GrowingMarkdown } from "../src/md/tail";

const SAMPLE = `# Title

Some *words* and \`code\`, $x^2$ and a [link](https://example.org).

- one
- two
  - three

1. first
2. second

\`\`\`python
def f(x):

    return x
\`\`\`

| a | b |
|---|---|
| 1 | 2 |

$$
\\int_0^1 x
$$

> quoted
> twice

The end.
`;

const shape = (tokens: { type: string; raw: string }[]) =>
  tokens.map((t) => [t.type, t.raw.trimEnd()]).filter(([type]) => type !== "space");

test("what grows by any pieces ends as what is read at once", () => {
  const whole = shape(lex(SAMPLE.repeat(3)));
  for (const step of [1, 2, 3, 7, 31, 200]) {
    const g = new GrowingMarkdown();
    const text = SAMPLE.repeat(3);
    for (let n = step; n < text.length + step; n += step) g.update(text.slice(0, n));
    assert.deepEqual(shape([...g.frozen, ...g.tail]), whole, `pieces of ${step}`);
  }
});

test("an open fence is not read as Markdown", () => {
  const g = new GrowingMarkdown();
  g.update("```c\nint *a, *b;\n# not a heading");
  assert.equal(g.tail.length, 1);
  assert.equal(g.tail[0]?.type, "code");
});

test("frozen blocks keep their identity", () => {
  const g = new GrowingMarkdown();
  g.update("a\n\nb\n\nc\n\nd\n\ne\n\nf");
  const first = g.frozen[0];
  g.update("a\n\nb\n\nc\n\nd\n\ne\n\nf\n\ng\n\nh");
  assert.equal(g.frozen[0], first);
});

test("only http, https and mailto are followed", () => {
  for (const good of ["https://a.example/x?y#z", "http://127.0.0.1:80/", "mailto:a@b.example"])
    assert.ok(safeUrl(good), good);
  for (const bad of [
    "javascript:x",
    "JAVASCRIPT:x",
    "java\nscript:x",
    "\u0001javascript:x",
    "&#106;avascript:x",
    "data:text/html,x",
    "//a.example",
    "/x",
    "x",
    "#x",
    "file:///x",
    "blob:x",
    "",
  ])
    assert.equal(safeUrl(bad), null, bad);
});

test("entities are characters", () => {
  assert.equal(decode("&lt;a&gt; &amp;amp; &#65;&#x42; &nosuch; &#x110000;"), "<a> &amp; AB &nosuch; &#x110000;");
});

test("the end keeps what was right and mends what was not", () => {
  const g = new GrowingMarkdown();
  g.update("[a][x]\n\nb\n\nc\n\nd\n\ne");
  const kept = finish("[a][x]\n\nb\n\nc\n\nd\n\ne", g);
  assert.equal(kept[0], g.frozen[0]);
  const mended = finish("[a][x]\n\nb\n\nc\n\nd\n\ne\n\n[x]: https://example.org", g) as {
    tokens?: { type: string }[];
  }[];
  assert.equal(mended[0]?.tokens?.[0]?.type, "link");
});
