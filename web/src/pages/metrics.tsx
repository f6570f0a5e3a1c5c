export function MetricsPage() {
  return <p class="empty">metrics</p>;
}
