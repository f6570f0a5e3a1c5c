/** Random names for chats and messages. randomUUID is missing on plain http beyond loopback. */
export function uid(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}
