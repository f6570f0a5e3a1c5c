/** Line icons, drawn for this page on a 20 px grid. */
const paths: Record<string, string> = {
  chat: "M3 4.5h14v9H9l-4 3v-3H3z",
  models: "M10 2.500l7 3.700-7 3.800-7-3.800zM3 10l7 3.800 7-3.800M3 13.700l7 3.800 7-3.800",
  playground: "M4 5l4 5-4 5M10 15h6",
  metrics: "M3 16.500h14M5 14V9M9 14V4M13 14v-3.500M16.500 14V7",
  settings: "M3 6h8M15 6h2M3 14h2M9 14h8M13 4v4M7 12v4",
  logs: "M4 4h12M4 8h12M4 12h8M4 16h10",
  send: "M10 16V4M5 9l5-5 5 5",
  stop: "M6 6h8v8H6z",
  plus: "M10 4v12M4 10h12",
  pin: "M7 3h6l-1 5 2 3H6l2-3zM10 11v6",
  list: "M3 5h14M3 10h14M3 15h14",
  search: "M9 4a5 5 0 1 0 0 10A5 5 0 0 0 9 4zM13 13l4 4",
  close: "M5 5l10 10M15 5L5 15",
  sliders: "M3 6h8M15 6h2M3 14h2M9 14h8M13 4v4M7 12v4",
  more: "M4 10h.01M10 10h.01M16 10h.01",
  down: "M5 8l5 5 5-5",
};

export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" aria-hidden="true" focusable="false">
      <path
        d={paths[name]}
        fill="none"
        stroke="currentColor"
        stroke-width="1.500"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}
