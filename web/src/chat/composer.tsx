/** Where messages are written. A draft survives a reload; a long paste becomes a file. */
import { useEffect, useRef, useState } from "preact/hooks";
import { isImage } from "../lib/images";
import { prefs } from "../lib/prefs";
import { link } from "../lib/server";
import { Icon } from "../ui/icons";
import { complain } from "../ui/toasts";
import { guard, modelOf, sendText } from "./actions";
import { attach, attachText, PASTE_LIMIT } from "./attach";
import { runOf, stop } from "./run";
import { openChat, openId } from "./store";
import { Thumb } from "./thumb";
import type { Attachment } from "./types";

const draftKey = () => `hearth.draft.${openId.peek() ?? "new"}`;

export function Composer() {
  const [text, setText] = useState(sessionStorage.getItem(draftKey()) ?? "");
  const [files, setFiles] = useState<Attachment[]>([]);
  const area = useRef<HTMLTextAreaElement>(null);
  const run = openId.value ? runOf(openId.value) : undefined;
  const ready = (text.trim() || files.length) && !run && link.value !== "offline";

  const change = (value: string) => {
    setText(value);
    sessionStorage.setItem(draftKey(), value);
  };
  useEffect(() => {
    if (innerWidth >= 720) area.current?.focus();
  }, []);
  useEffect(() => {
    const a = area.current;
    if (!a) return;
    a.style.height = "auto";
    a.style.height = `${Math.min(a.scrollHeight, innerHeight * 0.4)}px`;
  }, [text]);

  const submit = () => {
    if (!ready) return;
    const said = text.trim();
    const with_ = files;
    sessionStorage.removeItem(draftKey());
    setText("");
    setFiles([]);
    guard(sendText(said, with_));
  };
  const add = async (list: Iterable<File>) => {
    for (const f of list) {
      try {
        const a = await attach(f, modelOf(openChat.peek()));
        setFiles((old) => [...old, a]);
      } catch (why) {
        complain(why);
      }
    }
  };
  // Anywhere on the page: a file that misses the box would otherwise take the page's place.
  useEffect(() => {
    const over = (e: DragEvent) => e.dataTransfer?.types.includes("Files") && e.preventDefault();
    const drop = (e: DragEvent) => {
      if (!e.dataTransfer?.files.length) return;
      e.preventDefault();
      add([...e.dataTransfer.files]);
    };
    addEventListener("dragover", over);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", over);
      removeEventListener("drop", drop);
    };
  }, []);
  const onPaste = async (e: ClipboardEvent) => {
    const pasted = [...(e.clipboardData?.files ?? [])];
    const long = e.clipboardData?.getData("text/plain") ?? "";
    if (!pasted.length && long.length <= PASTE_LIMIT) return;
    e.preventDefault();
    if (pasted.length) return add(pasted);
    const a = await attachText(long);
    setFiles((old) => [...old, a]);
  };
  const onKey = (e: KeyboardEvent) => {
    if (e.isComposing) return;
    if (e.key === "Enter" && (prefs.value.enterSends ? !e.shiftKey : e.metaKey || e.ctrlKey)) {
      e.preventDefault();
      submit();
    } else if (e.key === "ArrowUp" && !text) {
      const edits = [...document.querySelectorAll<HTMLButtonElement>(".message.user .actions button")];
      const last = edits.filter((b) => b.textContent === "Edit").at(-1);
      if (last) {
        e.preventDefault();
        last.click();
      }
    }
  };
  return (
    <form
      class="composer"
      aria-label="Message"
      onSubmit={(e) => {
        e.preventDefault();
        submit();
      }}
    >
      {files.length > 0 && <Files files={files} onRemove={(blob) => setFiles(files.filter((f) => f.blob !== blob))} />}
      <div class="composer-row">
        <label class="quiet icon-button attach" title="Attach a file">
          <Icon name="plus" />
          <input
            type="file"
            multiple
            aria-label="Attach files"
            onChange={(e) => {
              add([...(e.currentTarget.files ?? [])]);
              e.currentTarget.value = "";
            }}
          />
        </label>
        <textarea
          ref={area}
          rows={1}
          aria-label="Message"
          placeholder="Message"
          value={text}
          onInput={(e) => change(e.currentTarget.value)}
          onPaste={onPaste}
          onKeyDown={onKey}
        />
        {run ? (
          <button type="button" class="primary icon-button" aria-label="Stop" onClick={() => stop(run)}>
            <Icon name="stop" />
          </button>
        ) : (
          <button type="submit" class="primary icon-button" aria-label="Send" disabled={!ready}>
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  );
}

function Files({ files, onRemove }: { files: Attachment[]; onRemove: (blob: string) => void }) {
  return (
    <div class="chips">
      {files.map((f) => (
        <span key={f.blob} class="chip">
          {isImage(f.type) && <Thumb file={f} />}
          <span class="clip">{f.name}</span> <span class="dim">{Math.ceil(f.size / 1000)} KB</span>
          <button type="button" class="quiet" aria-label={`Remove ${f.name}`} onClick={() => onRemove(f.blob)}>
            ×
          </button>
        </span>
      ))}
    </div>
  );
}
