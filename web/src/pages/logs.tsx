/** The server's log as it comes: up to ten thousand lines, of which only those in sight are mounted. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { saveFile } from "../lib/clipboard";
import { type LogLine, link, logs, topics } from "../lib/server";
import { CopyButton } from "../ui/copy";

const ROW = 20;
const LEVELS = ["debug", "info", "warn", "error"] as const;

function filtered(all: LogLine[], level: string, module: string, text: string): LogLine[] {
  const least = LEVELS.indexOf(level as "info");
  const words = text.trim().toLowerCase();
  return all.filter(
    (l) =>
      LEVELS.indexOf(l.level) >= least &&
      (!module || l.module === module) &&
      (!words || l.message.toLowerCase().includes(words)),
  );
}

export function LogsPage() {
  const [level, setLevel] = useState("debug");
  const [module, setModule] = useState("");
  const [text, setText] = useState("");
  const [frozen, setFrozen] = useState<LogLine[] | null>(null);
  useEffect(() => {
    topics.value = ["logs"];
    return () => {
      topics.value = [];
    };
  }, []);
  const all = frozen ?? logs.value;
  const modules = useMemo(() => [...new Set(all.map((l) => l.module))].sort(), [all]);
  const list = useMemo(() => filtered(all, level, module, text), [all, level, module, text]);
  const save = () => saveFile("hearth.log", list.map(asText).join("\n"), "text/plain");
  return (
    <div class="page tall">
      <h1 class="page-title">Logs</h1>
      <div class="row wrap log-filter" role="group" aria-label="Filter">
        <select aria-label="Level" value={level} onChange={(e) => setLevel(e.currentTarget.value)}>
          {LEVELS.map((l) => (
            <option key={l} value={l}>
              {l === "debug" ? "all levels" : l}
            </option>
          ))}
        </select>
        <select aria-label="Module" value={module} onChange={(e) => setModule(e.currentTarget.value)}>
          <option value="">all modules</option>
          {modules.map((m) => (
            <option key={m}>{m}</option>
          ))}
        </select>
        <input
          class="grow"
          data-search
          aria-label="Text"
          placeholder="Text"
          value={text}
          onInput={(e) => setText(e.currentTarget.value)}
        />
        <button type="button" aria-pressed={frozen !== null} onClick={() => setFrozen(frozen ? null : logs.value)}>
          {frozen ? "Resume" : "Pause"}
        </button>
        <button type="button" onClick={save} disabled={!list.length}>
          Save
        </button>
      </div>
      <Lines list={list} any={all.length > 0} />
      <p class="dim small" role="status">
        {list.length} of {all.length} lines{link.value === "offline" ? "; the server does not answer" : ""}
      </p>
    </div>
  );
}

const asText = (l: LogLine) => `${l.time} ${l.level} ${l.module}: ${l.message}`;

/** The line that was chosen, which may be wider than the page. */
function Whole({ line, onClose }: { line: LogLine; onClose: () => void }) {
  return (
    <div class="row log-whole">
      <p class="mono grow">{asText(line)}</p>
      <CopyButton text={asText(line)} label="Copy line" />
      <button type="button" class="quiet" aria-label="Close line" onClick={onClose}>
        ×
      </button>
    </div>
  );
}

function Lines({ list, any }: { list: LogLine[]; any: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [chosen, setChosen] = useState<LogLine | null>(null);
  const follow = useRef(true);
  useEffect(() => {
    if (box.current && follow.current) box.current.scrollTop = box.current.scrollHeight;
  }, [list]);
  const onScroll = () => {
    const b = box.current;
    if (!b) return; // the event of a jump comes after the page was left
    follow.current = b.scrollHeight - b.scrollTop - b.clientHeight < 48;
    setTop(b.scrollTop);
  };
  const first = Math.max(0, Math.floor(top / ROW) - 20);
  const shown = list.slice(first, first + 100);
  const space = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (space.current) {
      space.current.style.height = `${list.length * ROW}px`;
      (space.current.firstElementChild as HTMLElement).style.transform = `translateY(${first * ROW}px)`;
    }
  });
  const onClick = (e: MouseEvent) => {
    const row = e.target instanceof Element ? e.target.closest<HTMLElement>("[data-seq]") : null;
    if (row) setChosen(list.find((l) => l.seq === Number(row.dataset.seq)) ?? null);
  };
  const onKey = (e: KeyboardEvent) => {
    const step = e.key === "ArrowDown" ? 1 : e.key === "ArrowUp" ? -1 : 0;
    const at = chosen ? list.findIndex((l) => l.seq === chosen.seq) : -1;
    if (e.key === "Escape") setChosen(null);
    if (!step || at < 0) return;
    e.preventDefault();
    const next = Math.max(0, Math.min(list.length - 1, at + step));
    setChosen(list[next] ?? null);
    const b = box.current;
    if (b && (next * ROW < b.scrollTop || (next + 1) * ROW > b.scrollTop + b.clientHeight))
      b.scrollTop = next * ROW - b.clientHeight / 2;
  };
  return (
    <>
      <div
        class="log-lines"
        ref={box}
        onScroll={onScroll}
        onClick={onClick}
        onKeyDown={onKey}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached by keyboard
        tabIndex={0}
        role="log"
        aria-live="off"
        aria-label="Log lines"
      >
        <div ref={space}>
          <div>
            {shown.map((l) => (
              <div
                key={l.seq}
                class={`log-line ${l.level}${l.seq === chosen?.seq ? " chosen" : ""}`}
                data-seq={l.seq}
                title={l.message}
              >
                <span class="dim">{l.time.slice(11, 23)}</span>
                <span class="level">{l.level}</span>
                <span class="module">{l.module}</span>
                <span class="what">{l.message}</span>
              </div>
            ))}
          </div>
        </div>
        {!list.length && <p class="empty">{any ? "No line has this level, module and text." : "No lines yet."}</p>}
      </div>
      {chosen && <Whole line={chosen} onClose={() => setChosen(null)} />}
    </>
  );
}
