/** What the playground can ask: the fields of each endpoint and how they become a body. */
export interface Field {
  key: string;
  label: string;
  initial: string;
  rows?: number;
  mono?: boolean;
  /** A picture that is chosen; the value is its data: address. */
  image?: boolean;
  /** The field of the request that an error names, where it is not the key. */
  param?: string;
  /** How a message about it begins, where the server names no field. */
  says?: string;
}

type Values = Record<string, string>;

export interface Kind {
  name: string;
  path: string;
  fields: Field[];
  body: (v: Values, model: string) => object;
  jsonField?: string;
  /** The field whose lines the answer speaks of. */
  lines?: string;
  /** Needs a model that takes pictures. */
  sees?: boolean;
}

const number = (text: string | undefined, otherwise: number) => (text?.trim() ? Number(text) : otherwise);
export const lines = (text: string | undefined) => (text ?? "").split("\n").filter((l) => l.trim());
const temperature: Field = { key: "temperature", label: "Temperature", initial: "0" };
const maxTokens: Field = { key: "max_tokens", label: "Max tokens", initial: "64" };

export const KINDS: Kind[] = [
  {
    name: "Complete",
    path: "v1/completions",
    fields: [{ key: "prompt", label: "Prompt", initial: "The capital of France is", rows: 6 }, temperature, maxTokens],
    body: (v, model) => ({
      model,
      prompt: v.prompt,
      temperature: number(v.temperature, 0),
      max_tokens: number(v.max_tokens, 64),
      logprobs: 3,
    }),
  },
  {
    name: "Structured",
    path: "v1/chat/completions",
    jsonField: "schema",
    fields: [
      { key: "message", label: "Message", initial: "What is 12 plus 30?", rows: 3, param: "messages" },
      {
        key: "schema",
        label: "JSON schema",
        initial:
          '{\n  "type": "object",\n  "properties": { "sum": { "type": "integer", "minimum": 0, "maximum": 999 } },\n  "required": ["sum"],\n  "additionalProperties": false\n}',
        rows: 8,
        mono: true,
        param: "response_format",
        says: "json_schema",
      },
      maxTokens,
    ],
    body: (v, model) => ({
      model,
      messages: [{ role: "user", content: v.message }],
      temperature: 0,
      max_tokens: number(v.max_tokens, 64),
      response_format: { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(v.schema ?? "") } },
    }),
  },
  {
    name: "Embed",
    lines: "input",
    path: "v1/embeddings",
    fields: [{ key: "input", label: "Texts, one per line", initial: "a small fire\na large fire\nthe sea", rows: 6 }],
    body: (v, model) => ({ model, input: lines(v.input) }),
  },
  {
    name: "Vision",
    path: "v1/chat/completions",
    sees: true,
    fields: [
      { key: "image", label: "Picture", initial: "", image: true, param: "messages" },
      { key: "message", label: "Message", initial: "What is in this picture?", rows: 3, param: "messages" },
      temperature,
      maxTokens,
    ],
    body: (v, model) => {
      if (!v.image) throw new Error("Choose a picture.");
      return {
        model,
        messages: [
          {
            role: "user",
            content: [
              { type: "image_url", image_url: { url: v.image } },
              { type: "text", text: v.message },
            ],
          },
        ],
        temperature: number(v.temperature, 0),
        max_tokens: number(v.max_tokens, 64),
      };
    },
  },
  {
    name: "Tokens",
    path: "tokenize",
    fields: [{ key: "content", label: "Text", initial: "What is 12 plus 30?", rows: 6 }],
    body: (v, model) => ({ model, content: v.content, with_pieces: true }),
  },
  {
    name: "Template",
    path: "apply-template",
    fields: [
      { key: "system", label: "System prompt", initial: "", rows: 2, param: "messages" },
      { key: "message", label: "Message", initial: "What is 12 plus 30?", rows: 3, param: "messages" },
    ],
    body: (v, model) => ({
      model,
      messages: [...(v.system ? [{ role: "system", content: v.system }] : []), { role: "user", content: v.message }],
    }),
  },
  {
    name: "Rerank",
    lines: "documents",
    path: "v1/rerank",
    fields: [
      { key: "query", label: "Question", initial: "Where is it warm?" },
      { key: "documents", label: "Texts, one per line", initial: "by the fire\nat the pole", rows: 5 },
    ],
    body: (v, model) => ({ model, query: v.query, documents: lines(v.documents) }),
  },
  {
    name: "Infill",
    path: "infill",
    fields: [
      { key: "input_prefix", label: "Before", initial: "int add(int a, int b) {\n", rows: 4, mono: true },
      { key: "input_suffix", label: "After", initial: "}\n", rows: 3, mono: true },
      maxTokens,
    ],
    body: (v, model) => ({
      model,
      input_prefix: v.input_prefix,
      input_suffix: v.input_suffix,
      n_predict: number(v.max_tokens, 64),
    }),
  },
];
