/** Tools that run in this page, when the user switches them on. Everything else a model calls is answered by hand. */
import { calculate } from "../lib/calc";

export interface Tool {
  name: string;
  help: string;
  parameters: object;
  run(args: Record<string, unknown>): string;
}

export const builtin: Tool[] = [
  {
    name: "clock",
    help: "Gives the current date and time",
    parameters: {
      type: "object",
      properties: {
        timezone: { type: "string", description: "an IANA name such as Europe/Berlin; the user's own if absent" },
      },
    },
    run(args) {
      const zone = typeof args.timezone === "string" && args.timezone ? args.timezone : undefined;
      const now = new Date();
      return JSON.stringify({
        utc: now.toISOString(),
        local: now.toLocaleString("en-GB", { timeZone: zone, timeZoneName: "short" }),
      });
    },
  },
  {
    name: "calculator",
    help: "Computes an arithmetic expression",
    parameters: {
      type: "object",
      properties: { expression: { type: "string", description: "such as 2*(3+4)^2" } },
      required: ["expression"],
    },
    run: (args) => JSON.stringify({ result: calculate(String(args.expression ?? "")) }),
  },
];

export const toolNamed = (name: string) => builtin.find((t) => t.name === name);

/** The list that goes into a request: switched-on ones and what the user wrote (an array in OpenAI's form). */
export function toolList(names: string[] = [], custom = ""): object[] {
  const own = builtin.filter((t) => names.includes(t.name));
  const list = own.map((t) => ({
    type: "function",
    function: { name: t.name, description: t.help, parameters: t.parameters },
  }));
  if (!custom.trim()) return list;
  const more: unknown = JSON.parse(custom);
  return [...list, ...((Array.isArray(more) ? more : [more]) as typeof list)];
}

export function runTool(name: string, args: string): string {
  try {
    return toolNamed(name)?.run(JSON.parse(args || "{}")) ?? "";
  } catch (why) {
    return JSON.stringify({ error: (why as Error).message });
  }
}
