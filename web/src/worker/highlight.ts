/** Highlights code off the page's thread: source text in, flat spans out. */

import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import csharp from "highlight.js/lib/languages/csharp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import kotlin from "highlight.js/lib/languages/kotlin";
import lua from "highlight.js/lib/languages/lua";
import makefile from "highlight.js/lib/languages/makefile";
import php from "highlight.js/lib/languages/php";
import python from "highlight.js/lib/languages/python";
import r from "highlight.js/lib/languages/r";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import swift from "highlight.js/lib/languages/swift";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { createLowlight } from "lowlight";

const known = createLowlight({
  bash,
  c,
  cpp,
  csharp,
  css,
  diff,
  dockerfile,
  go,
  ini,
  java,
  javascript,
  json,
  kotlin,
  lua,
  makefile,
  php,
  python,
  r,
  ruby,
  rust,
  sql,
  swift,
  typescript,
  xml,
  yaml,
});

type Span = [string, string];
interface Node {
  type: string;
  value?: string;
  properties?: { className?: string[] };
  children?: Node[];
}

function flatten(node: Node, kind: string, out: Span[]): void {
  if (node.type === "text") {
    const last = out[out.length - 1];
    if (last && last[0] === kind) last[1] += node.value ?? "";
    else out.push([kind, node.value ?? ""]);
    return;
  }
  const own = node.properties?.className?.[0]?.replace("hljs-", "").replace(/[^a-z_]/g, "") ?? kind;
  for (const child of node.children ?? []) flatten(child, own, out);
}

self.onmessage = (e: MessageEvent<{ id: number; text: string; lang: string }>) => {
  const { id, text, lang } = e.data;
  let spans: Span[] | null = null;
  if (known.registered(lang.toLowerCase())) {
    spans = [];
    flatten(known.highlight(lang.toLowerCase(), text) as Node, "", spans);
  }
  self.postMessage({ id, spans });
};
