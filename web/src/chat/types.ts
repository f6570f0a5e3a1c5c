import type { ChatSettings } from "../lib/prefs";

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

export interface Attachment {
  name: string;
  type: string;
  size: number;
  blob: string;
  text?: string;
}

/** What an answer took. Times in milliseconds. */
export interface Figures {
  prompt_n?: number;
  cached_n?: number;
  predicted_n?: number;
  predicted_per_second?: number;
  prompt_ms?: number;
  predicted_ms?: number;
  first_ms?: number;
  /** Tokens that were guessed ahead, and those that were right. */
  draft_n?: number;
  draft_right?: number;
  total_tokens?: number;
}

export type MessageState = "done" | "streaming" | "stopped" | "cut" | "failed";

export interface Message {
  id: string;
  chat: string;
  parent: string | null;
  role: "user" | "assistant" | "tool";
  content: string;
  reasoning?: string;
  tool_calls?: ToolCall[];
  tool_call_id?: string;
  attachments?: Attachment[];
  model?: string;
  state: MessageState;
  finish?: string;
  error?: string;
  figures?: Figures;
  thought_ms?: number;
  created: number;
}

export interface Chat {
  id: string;
  title: string;
  model: string;
  settings: ChatSettings;
  head: string | null;
  pinned?: boolean;
  folder?: string;
  created: number;
  updated: number;
}
