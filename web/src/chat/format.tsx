/** The form an answer must have: any, JSON, a schema, a grammar, a pattern. */
import type { ChatSettings } from "../lib/prefs";

const EXAMPLE: Record<string, string> = {
  schema:
    '{\n  "type": "object",\n  "properties": { "answer": { "type": "integer", "minimum": 0, "maximum": 999 } },\n  "required": ["answer"],\n  "additionalProperties": false\n}',
  grammar: 'root ::= "yes" | "no"',
  regex: "[0-9]+",
};

export function FormatForm({ s, change }: { s: ChatSettings; change: (c: Partial<ChatSettings>) => void }) {
  const kind = s.format ?? "";
  const text = s.format_text ?? "";
  return (
    <fieldset>
      <legend>Form of the answer</legend>
      <select
        aria-label="Form of the answer"
        value={kind}
        onChange={(e) => {
          const next = e.currentTarget.value;
          change({ format: (next || undefined) as ChatSettings["format"], format_text: EXAMPLE[next] });
        }}
      >
        <option value="">any</option>
        <option value="json">JSON</option>
        <option value="schema">JSON schema</option>
        <option value="grammar">grammar</option>
        <option value="regex">regular expression</option>
      </select>
      {EXAMPLE[kind] && (
        <textarea
          class="mono"
          rows={6}
          aria-label="Schema, grammar or pattern"
          spellcheck={false}
          value={text}
          onInput={(e) => change({ format_text: e.currentTarget.value })}
        />
      )}
      {kind === "schema" && <p class="problem">{problem(text)}</p>}
    </fieldset>
  );
}

function problem(text: string): string {
  try {
    const value: unknown = JSON.parse(text || "{}");
    return value && typeof value === "object" && !Array.isArray(value) ? "" : "A schema is a JSON object.";
  } catch (why) {
    return (why as Error).message;
  }
}
