/** Scrolling that follows an answer: within 48 px of the end it stays there; an upward wheel, touch or key lets go. */
import { useEffect, useRef, useState } from "preact/hooks";

const NEAR = 48;
/** How long after the last piece the page may still grow by itself: math, highlighting and figures come late. */
const SETTLES_MS = 2000;

export function useFollow(version: unknown) {
  const box = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  const lastTop = useRef(0);
  const settledAt = useRef(0);
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
  const keep = () => {
    const b = box.current;
    if (!b || !following.current) return;
    b.scrollTop = b.scrollHeight;
    lastTop.current = b.scrollTop;
  };
  useEffect(() => {
    keep();
    settledAt.current = performance.now() + SETTLES_MS;
  }, [version]);
  useEffect(() => {
    const b = box.current;
    if (!b?.firstElementChild) return;
    const grown = new ResizeObserver(() => {
      if (performance.now() < settledAt.current) keep();
    });
    const onPress = () => (settledAt.current = 0); // what is opened by hand stays where it is
    grown.observe(b.firstElementChild);
    b.addEventListener("pointerdown", onPress);
    return () => {
      grown.disconnect();
      b.removeEventListener("pointerdown", onPress);
    };
  }, []);
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
  return { box, away, toEnd, letGo: () => set(false) };
}
