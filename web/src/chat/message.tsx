/** One message: who, what, and what can be done with it. */
import { useState } from "preact/hooks";
import { answerers, statOf } from "../lib/adapters";
import { plural, rate, seconds } from "../lib/format";
import { isImage } from "../lib/images";
import { prefs } from "../lib/prefs";
import { link } from "../lib/server";
import { Markdown } from "../md/markdown";
import { CopyButton } from "../ui/copy";
import { memo } from "../ui/memo";
import { answer, edit, goOn, guard, retry } from "./actions";
import { Editor } from "./editor";
import { FiguresLine } from "./figures";
import { type Run, speed } from "./run";
import { deleteMessage, fork, setHead } from "./store";
import { Thumb } from "./thumb";
import { ToolCards } from "./toolcard";
import type { Message } from "./types";

interface Props {
  message: Message;
  at: number;
  n: number;
  before: string;
  after: string;
  run?: Run;
  stamp?: unknown;
}

export const MessageView = memo(function MessageView({ message: m, run, ...place }: Props) {
  const [editing, setEditing] = useState(false);
  if (m.role === "tool") return <ToolResult message={m} />;
  const who = m.role === "user" ? "you" : (m.model ?? "model");
  return (
    <article class={`message ${m.role}`} aria-label={m.role === "user" ? "You" : who} data-id={m.id}>
      <div class="who">{who}</div>
      {m.reasoning && <Thoughts message={m} running={!!run && !m.content} />}
      {editing ? (
        <Editor
          text={m.content}
          label={m.role === "user" ? "Send" : "Save"}
          onCancel={() => setEditing(false)}
          onSave={(text) => {
            setEditing(false);
            guard(edit(m, text));
          }}
        />
      ) : m.role === "user" ? (
        <UserText message={m} />
      ) : (
        <Markdown text={m.content} growing={!!run} />
      )}
      {m.tool_calls && <ToolCards message={m} busy={!!run} />}
      {run && <Progress run={run} />}
      {!run && m.state !== "streaming" && <Ending message={m} />}
      {!run && m.state !== "streaming" && !editing && (
        <Actions message={m} onEdit={() => setEditing(true)} {...place} />
      )}
    </article>
  );
});

function UserText({ message: m }: { message: Message }) {
  return (
    <div class="said">
      {m.attachments?.map((a) =>
        isImage(a.type) ? (
          <Thumb key={a.blob} file={a} />
        ) : (
          <span key={a.blob} class="chip">
            {a.name} <span class="dim">{Math.ceil(a.size / 1000)} KB</span>
          </span>
        ),
      )}
      <div class="plain">{m.content}</div>
    </div>
  );
}

function ToolResult({ message: m }: { message: Message }) {
  return (
    <article class="message tool" aria-label="Tool result">
      <details>
        <summary>result</summary>
        <pre>{m.content}</pre>
      </details>
    </article>
  );
}

function Thoughts({ message: m, running }: { message: Message; running: boolean }) {
  const took = m.thought_ms ? ` ${seconds(m.thought_ms / 1000)}` : "";
  return (
    <details class="thoughts" open={running || undefined}>
      <summary>{running ? `thinking${took}` : `thoughts${took}`}</summary>
      <div class="plain dim">{m.reasoning}</div>
    </details>
  );
}

function Progress({ run }: { run: Run }) {
  const stat = statOf(run.message.model ?? "");
  const loading = stat?.state === "loading" ? stat : undefined;
  if (run.phase === "writing") {
    const now = speed(run);
    return (
      <div class="progress-line">
        {now > 0 && <span>{rate(now)} t/s</span>}
        <span>{plural(run.tokens, "token")}</span>
      </div>
    );
  }
  if (run.phase === "waiting") {
    return (
      <div class="progress-line">
        <span>
          The server is full; asking again in {Math.max(1, Math.ceil(((run.until ?? 0) - Date.now()) / 1000))} s
        </span>
      </div>
    );
  }
  const p = run.progress;
  const part = loading ? (loading.load_fraction ?? 0) : p ? p.processed / Math.max(1, p.total) : undefined;
  const elapsed = (performance.now() - run.began) / 1000;
  const left = p && p.processed > p.cached && part ? (elapsed / part) * (1 - part) : 0;
  return (
    <div class="progress-line">
      <span>
        {loading
          ? `Loading ${loading.name}`
          : p
            ? `Reading the prompt: ${p.processed} of ${p.total} tokens`
            : "Waiting for the model"}
      </span>
      {p && p.cached > 0 && <span>{p.cached} cached</span>}
      {left > 1 && <span>about {seconds(left)}</span>}
      <progress value={part} max={1} aria-label="Progress" />
    </div>
  );
}

function Ending({ message: m }: { message: Message }) {
  if (m.role !== "assistant" || m.state === "done") {
    return m.finish === "length" ? <Note text="The limit of tokens was reached." message={m} /> : null;
  }
  if (m.state === "stopped") return <Note text="Stopped." message={m} />;
  return <Note text={m.error ?? "The answer was cut."} message={m} bad />;
}

function Note({ text, message: m, bad }: { text: string; message: Message; bad?: boolean }) {
  const off = link.value === "offline";
  return (
    <div class={bad ? "ending bad" : "ending"}>
      <span>{text}</span>
      {m.content || !bad ? (
        <button type="button" class="link" disabled={off} onClick={() => guard(goOn(m))}>
          Continue
        </button>
      ) : (
        <button type="button" class="link" disabled={off} onClick={() => guard(goOn(m))}>
          Try again
        </button>
      )}
    </div>
  );
}

interface ActionProps {
  message: Message;
  at: number;
  n: number;
  before: string;
  after: string;
  onEdit: () => void;
}

function Actions({ message: m, at, n, before, after, onEdit }: ActionProps) {
  const others = answerers.value.filter((name) => name !== m.model);
  return (
    <div class="actions">
      <CopyButton text={m.content} label="Copy message" />
      {m.role === "assistant" && (
        <button type="button" class="quiet" onClick={() => guard(retry(m))}>
          Retry
        </button>
      )}
      {m.role === "assistant" && others.length > 0 && (
        <span class="quiet pick">
          <span aria-hidden="true">with…</span>
          <select
            aria-label="Retry with another model"
            value=""
            onChange={(e) => guard(retry(m, e.currentTarget.value))}
          >
            <option value="">with…</option>
            {others.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </span>
      )}
      {m.role === "user" && (
        <button type="button" class="quiet" onClick={() => guard(answer(m))}>
          Answer again
        </button>
      )}
      <button type="button" class="quiet" onClick={onEdit}>
        Edit
      </button>
      <button type="button" class="quiet" onClick={() => guard(fork(m))}>
        Fork
      </button>
      <button type="button" class="quiet" onClick={() => guard(deleteMessage(m))}>
        Delete
      </button>
      {n > 1 && (
        <span class="branch" role="group" aria-label="Versions">
          <button
            type="button"
            class="quiet"
            aria-label="Previous version"
            disabled={!before}
            onClick={() => setHead(before)}
          >
            ‹
          </button>
          <span>
            {at + 1}/{n}
          </span>
          <button
            type="button"
            class="quiet"
            aria-label="Next version"
            disabled={!after}
            onClick={() => setHead(after)}
          >
            ›
          </button>
        </span>
      )}
      {prefs.value.showFigures && m.figures && <FiguresLine figures={m.figures} />}
    </div>
  );
}
