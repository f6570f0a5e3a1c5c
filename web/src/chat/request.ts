/** A conversation as the body of /v1/chat/completions. */
import { adaptersOf, baseOf, shortName } from "../lib/adapters";
import { getBlob } from "../lib/db";
import { isImage } from "../lib/images";
import type { ChatSettings } from "../lib/prefs";
import { isSound, soundPart } from "../lib/sounds";
import { toolList } from "./tools";
import type { Attachment, Message } from "./types";

const SAMPLING = ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed"] as const;

const dataOf = async (a: Attachment) => a.text ?? (await getBlob(a.blob));

async function userText(m: Message): Promise<string> {
  const files = await Promise.all(
    (m.attachments ?? [])
      .filter((a) => !isImage(a.type) && !isSound(a.type))
      .map(async (a) => `File ${a.name}:\n\`\`\`\n${await dataOf(a)}\n\`\`\`\n`),
  );
  return files.length ? `${files.join("\n")}\n${m.content}` : m.content;
}

async function medium(a: Attachment): Promise<object> {
  const url = await dataOf(a);
  if (!url) throw new Error(`${a.name} of this chat is no longer in this browser.`);
  return isImage(a.type) ? { type: "image_url", image_url: { url } } : soundPart(a.type, url);
}

/** Pictures and sounds stand before the words, as most models learned it. */
async function userContent(m: Message): Promise<string | object[]> {
  const text = await userText(m);
  const media = await Promise.all((m.attachments ?? []).filter((a) => isImage(a.type) || isSound(a.type)).map(medium));
  if (!media.length) return text;
  return text ? [...media, { type: "text", text }] : media;
}

async function wire(m: Message): Promise<object> {
  if (m.role === "user") return { role: "user", content: await userContent(m) };
  if (m.role === "tool") return { role: "tool", tool_call_id: m.tool_call_id, content: m.content };
  if (!m.tool_calls?.length) return { role: "assistant", content: m.content };
  const calls = m.tool_calls.map((c) => ({
    id: c.id,
    type: "function",
    function: { name: c.name, arguments: c.arguments },
  }));
  return { role: "assistant", content: m.content, tool_calls: calls };
}

function format(s: ChatSettings): object {
  const text = s.format_text ?? "";
  switch (s.format) {
    case "json":
      return { response_format: { type: "json_object" } };
    case "schema":
      return {
        response_format: { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(text || "{}") } },
      };
    case "grammar":
      return { grammar: text };
    case "regex":
      return { regex: text };
    default:
      return {};
  }
}

function thinking(s: ChatSettings): object {
  return {
    ...(s.thinking ? { enable_thinking: s.thinking === "on" } : {}),
    ...(s.effort ? { reasoning_effort: s.effort } : {}),
    ...(s.thinking_budget !== undefined ? { thinking_budget: s.thinking_budget } : {}),
  };
}

/** Adapters that the chat chose, of those that this model has; none chosen: what the model's name and settings say. */
function adapters(model: string, s: ChatSettings): object {
  const list = adaptersOf(model);
  if (!list.some((a) => s.lora?.[shortName(a)] !== undefined)) return {};
  const lora = list
    .filter((a) => a.id === model || s.lora?.[shortName(a)] !== undefined)
    .map((a) => ({ name: shortName(a), scale: s.lora?.[shortName(a)] ?? 1 }));
  return { model: baseOf(model), lora };
}

export async function bodyOf(model: string, s: ChatSettings, path: Message[], goOn: boolean): Promise<object> {
  const messages = await Promise.all(
    path.filter((m) => m.role !== "assistant" || m.content || m.tool_calls?.length).map(wire),
  );
  if (s.system?.trim()) messages.unshift({ role: "system", content: s.system });
  const tools = toolList(s.tools, s.custom_tools);
  const sampling = Object.fromEntries(SAMPLING.filter((k) => s[k] !== undefined).map((k) => [k, s[k]]));
  return {
    model,
    messages,
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
    timings_per_token: true,
    ...sampling,
    ...(s.stop ? { stop: s.stop.split("\n").filter(Boolean) } : {}),
    ...(tools.length ? { tools } : {}),
    ...thinking(s),
    ...format(s),
    ...adapters(model, s),
    ...(goOn ? { continue_final_message: true } : {}),
  };
}
