/** Upper bound in seconds (null: none) and how many. */
export type Bucket = [number | null, number];

/** Where the share q of what was observed between two moments lies; undefined: nothing was. */
export function quantileBetween(before: Bucket[], now: Bucket[], q: number): number | undefined {
  const fresh = now.map(([bound, n], i): Bucket => [bound, n - (before[i]?.[1] ?? 0)]);
  const total = fresh.reduce((sum, [, n]) => sum + n, 0);
  if (total <= 0) return undefined;
  let below = 0;
  for (const [bound, n] of fresh) {
    below += n;
    if (below >= q * total) return bound ?? fresh.at(-2)?.[0] ?? undefined;
  }
  return undefined;
}
