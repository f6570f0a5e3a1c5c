/** Scrolling that follows an answer: within 48 px of the end it stays there; an upward wheel, touch or key lets go. */
import { useEffect, useRef, useState } from "preact/hooks";

const NEAR = 48;

export function useFollow(version: unknown) {
  const box = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  const lastTop = useRef(0);
  const [away, setAway] = useState(false);
  const set = (on: boolean) => {
    following.current = on;
    setAway(!on);
  };
  const toEnd = () => {
    const b = box.current;
    if (b) b.scrollTop = b.scrollHeight;
    set(true);
  };
  useEffect(() => {
    const b = box.current;
    if (b && following.current) {
      b.scrollTop = b.scrollHeight;
      lastTop.current = b.scrollTop;
    }
  }, [version]);
  useEffect(() => {
    const b = box.current;
    if (!b) return;
    let touch = 0;
    const near = () => b.scrollHeight - b.scrollTop - b.clientHeight < NEAR;
    const release = () => b.scrollHeight > b.clientHeight && set(false);
    const onWheel = (e: WheelEvent) => e.deltaY < 0 && release();
    const onStart = (e: TouchEvent) => (touch = e.touches[0]?.clientY ?? 0);
    const onMove = (e: TouchEvent) => (e.touches[0]?.clientY ?? 0) > touch + 4 && release();
    const onKey = (e: KeyboardEvent) => {
      if (e.target instanceof HTMLTextAreaElement || e.target instanceof HTMLInputElement) return;
      if (["ArrowUp", "PageUp", "Home"].includes(e.key)) release();
      if (e.key === "End") toEnd();
    };
    // Only a way down resumes: an event of an earlier jump may come in between, with the end still in sight.
    const onScroll = () => {
      const down = b.scrollTop > lastTop.current;
      lastTop.current = b.scrollTop;
      if (!following.current && down && near()) set(true);
    };
    b.addEventListener("wheel", onWheel, { passive: true });
    b.addEventListener("touchstart", onStart, { passive: true });
    b.addEventListener("touchmove", onMove, { passive: true });
    b.addEventListener("scroll", onScroll, { passive: true });
    addEventListener("keydown", onKey);
    return () => {
      b.removeEventListener("wheel", onWheel);
      b.removeEventListener("touchstart", onStart);
      b.removeEventListener("touchmove", onMove);
      b.removeEventListener("scroll", onScroll);
      removeEventListener("keydown", onKey);
    };
  }, []);
  return { box, away, toEnd };
}
