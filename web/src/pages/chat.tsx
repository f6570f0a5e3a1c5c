/** The chat page: list, conversation, setup. */
import { useEffect } from "preact/hooks";
import { tail } from "../app/router";
import { Composer } from "../chat/composer";
import { Conversation } from "../chat/conversation";
import { ChatHead } from "../chat/head";
import { ChatList } from "../chat/list";
import { Setup } from "../chat/setup";
import { show } from "../chat/store";
import { prefs, setPrefs } from "../lib/prefs";

export function ChatPage() {
  const [chat, message] = tail.value.split("/");
  const id = chat || null;
  useEffect(() => {
    show(id);
    if (innerWidth < 720) setPrefs({ listOpen: false, setupOpen: false });
  }, [id]);
  const { listOpen, setupOpen } = prefs.value;
  return (
    <div class={`chat-page${listOpen ? " with-list" : ""}${setupOpen ? " with-setup" : ""}`}>
      {listOpen && <ChatList />}
      <section class="chat" aria-label="Conversation">
        <ChatHead />
        <Conversation key={id ?? "new"} sought={message ?? ""} />
        <Composer key={`c${id ?? "new"}`} />
      </section>
      {setupOpen && <Setup />}
    </div>
  );
}
