/** A modal dialog: the browser's own, which keeps the focus inside and closes on Escape. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Props {
  label: string;
  onClose: () => void;
  wide?: boolean;
  children: ComponentChildren;
}

export function Dialog({ label, onClose, wide, children }: Props) {
  const at = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const d = at.current;
    d?.showModal();
    return () => d?.close();
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it by keyboard
    <dialog
      ref={at}
      class={wide ? "wide" : undefined}
      aria-label={label}
      onCancel={(e) => {
        e.preventDefault();
        onClose();
      }}
      onClick={(e) => e.target === at.current && onClose()}
    >
      <div class="dialog-body">{children}</div>
    </dialog>
  );
}
