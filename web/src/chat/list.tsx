/** The chats of this browser, by folder or age, and a search over all that was ever said. */
import { useEffect, useState } from "preact/hooks";
import { go } from "../app/router";
import { allMessages } from "../lib/db";
import { age } from "../lib/format";
import { askText } from "../ui/ask";
import { Icon } from "../ui/icons";
import { runs } from "./run";
import { chats, chatsLoaded, deleteChat, openId, updateChat } from "./store";
import type { Chat } from "./types";

interface Hit {
  chat: string;
  message: string;
  text: string;
}

export function ChatList() {
  const [query, setQuery] = useState("");
  const hits = useSearch(query);
  return (
    <aside class="chat-list" aria-label="Chats">
      <div class="list-head">
        <button type="button" class="primary" onClick={() => go("chat")}>
          <Icon name="plus" /> New
        </button>
        <input
          type="search"
          data-search
          placeholder="Search"
          aria-label="Search all chats"
          value={query}
          onInput={(e) => setQuery(e.currentTarget.value)}
          onKeyDown={(e) => e.key === "Escape" && setQuery("")}
        />
      </div>
      <div class="scroll">{query.trim().length > 1 ? <Hits hits={hits} /> : <Groups />}</div>
    </aside>
  );
}

function useSearch(query: string): Hit[] | null {
  const [hits, setHits] = useState<Hit[] | null>(null);
  const words = query.trim().toLowerCase();
  useEffect(() => {
    setHits(null);
    if (words.length < 2) return;
    let live = true;
    const t = setTimeout(async () => {
      const found: Hit[] = [];
      for (const m of await allMessages()) {
        const at = m.content.toLowerCase().indexOf(words);
        if (at >= 0) found.push({ chat: m.chat, message: m.id, text: m.content.slice(Math.max(0, at - 24), at + 80) });
        if (found.length >= 100) break;
      }
      if (live) setHits(found);
    }, 120);
    return () => {
      live = false;
      clearTimeout(t);
    };
  }, [words]);
  return hits;
}

function Hits({ hits }: { hits: Hit[] | null }) {
  if (!hits) return <p class="empty">Searching</p>;
  const titles = new Map(chats.value.map((c) => [c.id, c.title]));
  if (!hits.length) return <p class="empty">No message has these words.</p>;
  return (
    <ul class="hits">
      {hits.map((h) => (
        <li key={h.message}>
          <a href={`#/chat/${h.chat}/${h.message}`}>
            <span class="clip">{titles.get(h.chat)}</span>
            <span class="dim clip">{h.text}</span>
          </a>
        </li>
      ))}
    </ul>
  );
}

function Groups() {
  if (!chatsLoaded.value) return null;
  if (!chats.value.length) return <p class="empty">No chats yet. What you write here stays in this browser.</p>;
  const groups = new Map<string, Chat[]>();
  for (const c of chats.value) {
    const name = c.pinned ? "Pinned" : c.folder ? `${c.folder}/` : age(c.updated);
    groups.set(name, [...(groups.get(name) ?? []), c]);
  }
  const order = [...groups].sort(([a], [b]) => Number(b === "Pinned") - Number(a === "Pinned"));
  return (
    <>
      {order.map(([name, list]) => (
        <section key={name}>
          <h2>{name}</h2>
          <ul>
            {list.map((c) => (
              <Row key={c.id} chat={c} />
            ))}
          </ul>
        </section>
      ))}
    </>
  );
}

function Row({ chat }: { chat: Chat }) {
  const busy = [...runs.value.values()].some((r) => r.message.chat === chat.id);
  const folder = async () => {
    const choices = [...new Set(chats.value.flatMap((c) => c.folder ?? []))];
    const text = chat.folder ?? "";
    const name = await askText({
      title: "Folder of this chat",
      label: "Name; empty: none",
      text,
      choices,
      action: "Move",
    });
    if (name !== null) updateChat(chat.id, { folder: name || undefined });
  };
  return (
    <li class="chat-row">
      <a
        href={`#/chat/${chat.id}`}
        aria-current={chat.id === openId.value ? "true" : undefined}
        class={busy ? "busy" : undefined}
      >
        {chat.title}
      </a>
      <span class="row-actions">
        <button
          type="button"
          class="quiet"
          aria-label={`${chat.pinned ? "Unpin" : "Pin"} ${chat.title}`}
          onClick={() => updateChat(chat.id, { pinned: !chat.pinned })}
        >
          <Icon name="pin" />
        </button>
        <button type="button" class="quiet" aria-label={`Folder of ${chat.title}`} onClick={folder}>
          <Icon name="models" />
        </button>
        <button type="button" class="quiet" aria-label={`Delete ${chat.title}`} onClick={() => deleteChat(chat)}>
          <Icon name="close" />
        </button>
      </span>
    </li>
  );
}
