/**
 * What of a model's text may become more than text: the one place that decides it. Addresses that a click may follow,
 * and what HTML in an answer turns into. e2e/hostile.mjs puts a permissive twin in its place and expects to be caught.
 */
import type { ComponentChild } from "preact";

const SCHEMES = ["http:", "https:", "mailto:"];

/** The address, or null where it is not one that a person would follow knowingly. */
export function safeUrl(url: string): string | null {
  const plain = decode(url).replace(/[\u0000-\u0020\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, "");
  try {
    const parsed = new URL(plain);
    return SCHEMES.includes(parsed.protocol) ? parsed.href : null;
  } catch {
    return null;
  }
}

/** HTML of a model is shown as it was written. */
export function htmlAs(raw: string): ComponentChild {
  return raw;
}

const names: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©" };

/** Entities as the characters they stand for. */
export function decode(text: string): string {
  if (!text.includes("&")) return text;
  return text.replace(/&(#x[0-9a-f]{1,6}|#\d{1,7}|\w{2,8});/gi, (all, name: string) => {
    if (name[0] !== "#") return names[name] ?? all;
    const code = name[1] === "x" || name[1] === "X" ? Number.parseInt(name.slice(2), 16) : Number(name.slice(1));
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : all;
  });
}

const INVISIBLE = /[\u202a-\u202e\u2066-\u2069]/g;

/** Marks that turn the direction of what follows would let a text show something else than it says. */
export const visible = (text: string) => text.replace(INVISIBLE, "\ufffd");
