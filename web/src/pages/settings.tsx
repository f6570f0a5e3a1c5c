export function SettingsPage() {
  return <p class="empty">settings</p>;
}
