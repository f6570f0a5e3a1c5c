/** Tool calls of an answer: their arguments as they stream, then a result, from a tool of this page or typed by hand. */
import { useState } from "preact/hooks";
import { answerTools, guard } from "./actions";
import { messages, openChat } from "./store";
import { runTool, toolNamed } from "./tools";
import { childrenOf } from "./tree";
import type { Message, ToolCall } from "./types";

const pretty = (json: string) => {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
};

export function ToolCards({ message: m, busy }: { message: Message; busy: boolean }) {
  const calls = m.tool_calls ?? [];
  const answered = childrenOf(messages.value, m.id).some((c) => c.role === "tool");
  const [results, setResults] = useState<string[]>(calls.map(() => ""));
  const set = (i: number, text: string) => setResults(calls.map((_, k) => (k === i ? text : (results[k] ?? ""))));
  const open = !busy && !answered && m.state === "done";
  return (
    <div class="tool-cards">
      {calls.map((c, i) => (
        <Card key={c.id || i} call={c} open={open} result={results[i] ?? ""} onResult={(t) => set(i, t)} />
      ))}
      {open && (
        <div class="row end">
          <button
            type="button"
            class="primary"
            disabled={calls.some((_, i) => !results[i]?.trim())}
            onClick={() => guard(answerTools(m, results))}
          >
            Send result
          </button>
        </div>
      )}
    </div>
  );
}

interface CardProps {
  call: ToolCall;
  open: boolean;
  result: string;
  onResult: (text: string) => void;
}

function Card({ call, open, result, onResult }: CardProps) {
  const mine = toolNamed(call.name) && openChat.value?.settings.tools?.includes(call.name);
  return (
    <section class="tool-card" aria-label={`Tool call ${call.name}`}>
      <h3>
        <span class="dim">calls</span> {call.name}
      </h3>
      <pre>{pretty(call.arguments)}</pre>
      {open && mine && (
        <button type="button" onClick={() => onResult(runTool(call.name, call.arguments))}>
          Run here
        </button>
      )}
      {open && (
        <label class="field">
          <span>Result</span>
          <textarea
            rows={2}
            value={result}
            placeholder="What the tool gives back"
            onInput={(e) => onResult(e.currentTarget.value)}
          />
        </label>
      )}
    </section>
  );
}
