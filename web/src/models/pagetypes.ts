/** Types of cache pages from exact to small, and how many more tokens they hold (docs/kv-cache.md). */
export const PAGE_TYPES: [value: string, words: string][] = [
  ["f16", "f16"],
  ["q8_0", "q8_0, 1.9 × as many"],
  ["q5_0", "q5_0, 2.9 ×"],
  ["q4_0", "q4_0, 3.6 ×"],
  ["tq4", "tq4, 3.9 ×"],
  ["tq3", "tq3, 5.1 ×"],
];
