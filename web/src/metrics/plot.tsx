/** One small plot. The colours are read from the page, so that it follows the theme. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

interface Props {
  title: string;
  times: number[];
  values: number[];
  say: (v: number) => string;
}

const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function options(width: number): uPlot.Options {
  const axis = {
    stroke: () => colour("--dim"),
    grid: { stroke: () => colour("--line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width,
    height: 96,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 4, 0, 0],
    scales: {
      x: { range: (_u, _min, max) => [max - 300, max] },
      y: { range: (_u, _min, max) => [0, Math.max(1e-9, max || 1) * 1.1] },
    },
    axes: [
      { ...axis, show: false },
      { ...axis, size: 0, values: () => [], space: 32 },
    ],
    series: [{}, { stroke: () => colour("--accent"), width: 1.5, points: { show: false } }],
  };
}

export function Plot({ title, times, values, say }: Props) {
  const at = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    const box = at.current;
    if (!box) return;
    const made = new uPlot(options(box.clientWidth), [[], []], box);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: box.clientWidth, height: 96 }));
    watch.observe(box);
    return () => {
      watch.disconnect();
      made.destroy();
    };
  }, []);
  useEffect(() => plot.current?.setData([times, values]), [times, values]);
  const now = values.at(-1) ?? 0;
  const peak = Math.max(now, ...values);
  return (
    <figure class="plot" aria-label={`${title}: ${say(now)}`}>
      <figcaption>
        <span class="dim clip">{title}</span>
        <span class="figure">
          {say(now)} {peak > 0 && <span class="dim">peak {say(peak)}</span>}
        </span>
      </figcaption>
      <div ref={at} />
    </figure>
  );
}
