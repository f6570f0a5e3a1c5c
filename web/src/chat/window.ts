/**
 * Which messages are mounted. What is in sight comes first; the rest of the newest sixty follow a few at a time, between
 * frames, and so do older ones when they are asked for. Growth happens above: the view keeps its distance to the end.
 */
import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const FIRST = 10;
const STEP = 2;
const NEWEST = 60;
const OLDER = 100;

function afterPaint(work: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const frame = requestAnimationFrame(() => {
    timer = setTimeout(work);
  });
  return () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
  };
}

/** Returns the first message that is mounted, and what asks for older ones. sought is one that must be; -1: none. */
export function useWindow(n: number, ready: boolean, box: RefObject<HTMLElement | null>, sought: number) {
  const from = useRef(-1);
  const goal = useRef(0);
  const fromEnd = useRef(-1);
  const [drawn, redraw] = useState(0);
  // Where the window begins is settled when the chat opens: later messages take nothing away above.
  if (from.current < 0 && ready && n) {
    from.current = Math.max(0, n - FIRST);
    goal.current = Math.max(0, n - NEWEST);
  }
  if (sought >= 0 && sought < from.current) {
    from.current = sought;
    goal.current = Math.min(goal.current, sought);
  }
  const first = Math.max(0, Math.min(from.current, n - 1));
  useLayoutEffect(() => {
    const b = box.current;
    if (b && fromEnd.current >= 0) b.scrollTop = b.scrollHeight - fromEnd.current;
    fromEnd.current = -1;
  }, [first]);
  useEffect(() => {
    if (from.current < 0 || first <= goal.current) return;
    return afterPaint(() => {
      const b = box.current;
      if (b) fromEnd.current = b.scrollHeight - b.scrollTop;
      from.current = Math.max(goal.current, first - STEP);
      redraw((k) => k + 1);
    });
  }, [first, drawn, ready]);
  const older = () => {
    goal.current = Math.max(0, goal.current - OLDER);
    redraw((k) => k + 1);
  };
  return { first, settled: first <= goal.current, older };
}
