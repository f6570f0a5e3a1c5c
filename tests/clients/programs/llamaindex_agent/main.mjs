// SPDX-License-Identifier: Apache-2.0
// LlamaIndex: its agent workflow with a tool, over OpenAI's and Ollama's protocol.
import assert from 'node:assert/strict';
import { agent } from '@llamaindex/workflow';
import { Ollama } from '@llamaindex/ollama';
import { OpenAI } from '@llamaindex/openai';
import { tool } from 'llamaindex';
import { z } from 'zod';

const [url, model] = process.argv.slice(2);
let asked = 0;
const weather = tool({ name: 'get_weather', description: 'Get the weather in a city', parameters: z.object({ city: z.string() }),
  execute: ({ city }) => (asked++, `sunny in ${city}`) });
const openai = new OpenAI({ model, apiKey: 'none', baseURL: `${url}/v1`, supportToolCall: true, maxTokens: 200 });
const answer = await openai.chat({ messages: [{ role: 'user', content: 'What is the weather in Paris?' }] });
assert.equal(answer.message.content, 'It is sunny in Paris today.');
const ollama = new Ollama({ model, config: { host: url } });
const said = await ollama.chat({ messages: [{ role: 'user', content: 'What is the weather in Paris?' }] });
assert.equal(said.message.content, 'It is sunny in Paris today.');
const result = await agent({ llm: ollama, tools: [weather] }).run('What is the weather in Paris?');
assert.match(JSON.stringify(result.data.result), /It is sunny in Paris today\./);
assert.equal(asked, 1);
console.log('ok');
process.exit(0);
