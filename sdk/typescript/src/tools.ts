// SPDX-License-Identifier: Apache-2.0
/** Functions that the model may call, and the loop that runs them. */
import type { Answer } from "./answer.js";
import type { Json, Message, ToolCall, ToolDescription } from "./types.js";

/** A function with what the model is told about it. */
export class Tool<A = Json> {
  constructor(
    readonly name: string,
    readonly description: string,
    /** A JSON schema; the server holds the model's arguments to it. */
    readonly parameters: Json,
    readonly run: (args: A, signal: AbortSignal | undefined) => unknown,
  ) {}

  describe(): ToolDescription {
    return {
      type: "function",
      function: { name: this.name, description: this.description, parameters: this.parameters },
    };
  }
}

/** A tool: `tool({name, description, parameters, run})`. The type of the arguments is the caller's word about the schema. */
export function tool<A = Json>(given: {
  name: string;
  description?: string;
  parameters: Json;
  run: (args: A, signal: AbortSignal | undefined) => unknown;
}): Tool<A> {
  return new Tool<A>(given.name, given.description ?? "", given.parameters, given.run);
}

export interface ToolRun {
  answer: Answer;
  /** The whole conversation, with the last answer. */
  messages: Message[];
  rounds: number;
  /** maxRounds was reached while the model still called tools; the calls of the last answer were not run. */
  exhausted: boolean;
}

// biome-ignore lint/suspicious/noExplicitAny: a list of tools has arguments of different types
export type AnyTool = Tool<any>;

/**
 * Asks until the model calls no more. A call is run only if its answer ended with tool_calls: what was cut off is never run. Whatever
 * goes wrong with a call (an unknown name, arguments that are no JSON, an exception) becomes its result, so that the model can do better.
 */
export async function runLoop(
  ask: (messages: Message[]) => Promise<Answer>,
  messages: Message[],
  tools: readonly AnyTool[],
  maxRounds: number,
  onCall: ((call: ToolCall) => void) | undefined,
  signal: AbortSignal | undefined,
): Promise<ToolRun> {
  if (!(maxRounds >= 1)) throw new RangeError("maxRounds is at least 1");
  const byName = new Map(tools.map((t) => [t.name, t]));
  if (byName.size < tools.length) throw new TypeError("two tools have the same name");
  for (let rounds = 1; ; rounds++) {
    const answer = await ask(messages);
    messages.push(answer.message);
    const calling = answer.finishReason === "tool_calls";
    if (!calling || rounds >= maxRounds) return { answer, messages, rounds, exhausted: calling };
    for (const call of answer.toolCalls.filter((c) => c.complete)) {
      onCall?.(call);
      messages.push({
        role: "tool",
        tool_call_id: call.id,
        name: call.name,
        content: await resultOf(byName.get(call.name), call, signal),
      });
    }
  }
}

/** JSON with a space behind each colon and comma, as chat templates write it; a small model misreads the form without. */
const spaced = (value: unknown): string =>
  (JSON.stringify(value, null, 1) ?? "null").replace(/,\n */g, ", ").replace(/\n */g, "");

async function resultOf(found: AnyTool | undefined, call: ToolCall, signal: AbortSignal | undefined): Promise<string> {
  try {
    if (!found) throw new TypeError(`there is no tool '${call.name}'`);
    const value = await found.run(JSON.parse(call.arguments || "{}"), signal);
    return typeof value === "string" ? value : spaced(value);
  } catch (error) {
    return spaced({ error: error instanceof Error ? `${error.name}: ${error.message}` : String(error) });
  }
}
