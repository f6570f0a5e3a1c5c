export function LogsPage() {
  return <p class="empty">logs</p>;
}
