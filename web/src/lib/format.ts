/** Figures as people read them. */
export function bytes(n: number | null | undefined): string {
  if (n === null || n === undefined || !Number.isFinite(n)) return "?";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  let v = n;
  while (v >= 1000 && at < units.length - 1) {
    v /= 1000;
    at++;
  }
  return `${at === 0 || v >= 100 ? v.toFixed(0) : v.toFixed(1)} ${units[at]}`;
}

export function seconds(s: number): string {
  if (!Number.isFinite(s)) return "?";
  if (s < 10) return `${s.toFixed(s < 1 ? 2 : 1)} s`;
  if (s < 60) return `${s.toFixed(0)} s`;
  const m = Math.floor(s / 60);
  return m < 60 ? `${m}:${String(Math.floor(s % 60)).padStart(2, "0")}` : `${Math.floor(m / 60)} h ${m % 60} min`;
}

export const count = (n: number) => n.toLocaleString("en-US");
export const plural = (n: number, word: string) => `${count(n)} ${n === 1 ? word : `${word}s`}`;
export const rate = (n: number) => (n >= 100 ? n.toFixed(0) : n.toFixed(1));
export const percent = (n: number) => `${Math.round(n * 100)}%`;

export function params(n: number): string {
  if (n >= 1e9) return `${(n / 1e9).toFixed(1)}B`;
  return `${(n / 1e6).toFixed(0)}M`;
}

/** The group of the chat list that a moment belongs to. */
export function age(then: number, now = Date.now()): string {
  const day = new Date(now).setHours(0, 0, 0, 0);
  if (then >= day) return "Today";
  if (then >= day - 86400e3) return "Yesterday";
  if (then >= day - 7 * 86400e3) return "Last 7 days";
  return new Date(then).toLocaleDateString("en", { month: "long", year: "numeric" });
}
