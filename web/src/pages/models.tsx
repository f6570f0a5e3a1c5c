export function ModelsPage() {
  return <p class="empty">models</p>;
}
