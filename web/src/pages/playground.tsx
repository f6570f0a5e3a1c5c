export function PlaygroundPage() {
  return <p class="empty">playground</p>;
}
