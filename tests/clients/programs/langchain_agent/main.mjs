// SPDX-License-Identifier: Apache-2.0
// LangChain: an agent with a tool on each of its three providers, and a structured answer.
import assert from 'node:assert/strict';
import { createAgent, tool } from 'langchain';
import { ChatAnthropic } from '@langchain/anthropic';
import { ChatOllama } from '@langchain/ollama';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';

const [url, model] = process.argv.slice(2);
const asked = [];
const weather = tool(({ city }) => (asked.push(city), `sunny in ${city}`), {
  name: 'get_weather', description: 'Get the weather in a city', schema: z.object({ city: z.string() }),
});
const chats = [
  new ChatOpenAI({ model, apiKey: 'none', configuration: { baseURL: `${url}/v1` } }),
  new ChatOpenAI({ model, apiKey: 'none', useResponsesApi: true, configuration: { baseURL: `${url}/v1` } }),
  new ChatOllama({ model, baseUrl: url }),
  new ChatAnthropic({ model, apiKey: 'none', anthropicApiUrl: url, maxTokens: 200 }),
];
for (const chat of chats) {
  const agent = createAgent({ model: chat, tools: [weather] });
  const result = await agent.invoke({ messages: [{ role: 'user', content: 'What is the weather in Paris?' }] });
  const last = result.messages.at(-1);
  assert.match(JSON.stringify(last.content), /It is sunny in Paris today\./, chat.constructor.name);
}
assert.deepEqual(asked, ['Paris', 'Paris', 'Paris', 'Paris']);
console.log('ok');
