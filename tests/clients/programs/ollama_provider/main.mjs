// SPDX-License-Identifier: Apache-2.0
// ollama-ai-provider: the AI SDK's loop of tools over Ollama's protocol.
import assert from 'node:assert/strict';
import { generateText, stepCountIs, streamText, tool } from 'ai';
import { createOllama } from 'ollama-ai-provider-v2';
import { z } from 'zod';

const [url, model] = process.argv.slice(2);
let asked = 0;
const ollama = createOllama({ baseURL: `${url}/api` });
const tools = { get_weather: tool({ description: 'Get the weather in a city', inputSchema: z.object({ city: z.string() }), execute: async ({ city }) => (asked++, `sunny in ${city}`) }) };
const ask = { model: ollama(model), tools, stopWhen: stepCountIs(4), prompt: 'What is the weather in Paris?' };
assert.equal((await generateText(ask)).text, 'It is sunny in Paris today.');
const stream = streamText(ask);
let text = '';
for await (const piece of stream.textStream) text += piece;
assert.equal(text, 'It is sunny in Paris today.');
assert.equal(asked, 2);
console.log('ok');
