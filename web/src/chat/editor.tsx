import { useLayoutEffect, useRef, useState } from "preact/hooks";

interface Props {
  text: string;
  label: string;
  onSave: (text: string) => void;
  onCancel: () => void;
}

export function Editor({ text, label, onSave, onCancel }: Props) {
  const [value, setValue] = useState(text);
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    const a = area.current;
    if (!a) return;
    a.style.height = "auto";
    a.style.height = `${Math.min(a.scrollHeight + 2, innerHeight * 0.5)}px`;
  }, [value]);
  const onKey = (e: KeyboardEvent) => {
    if (e.isComposing) return;
    if (e.key === "Escape") {
      e.stopPropagation();
      onCancel();
    }
    if (e.key === "Enter" && (e.metaKey || e.ctrlKey)) onSave(value);
  };
  return (
    <div class="editor">
      <textarea
        aria-label="Edit message"
        autofocus
        ref={area}
        rows={2}
        value={value}
        onInput={(e) => setValue(e.currentTarget.value)}
        onKeyDown={onKey}
      />
      <div class="row end">
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
        <button type="button" class="primary" onClick={() => onSave(value)}>
          {label}
        </button>
      </div>
    </div>
  );
}
