// SPDX-License-Identifier: Apache-2.0
// Mastra: an agent with a tool, whole and streamed.
import assert from 'node:assert/strict';
import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';

const [url, model] = process.argv.slice(2);
let asked = 0;
const weather = createTool({ id: 'get_weather', description: 'Get the weather in a city', inputSchema: z.object({ city: z.string() }),
  execute: async () => (asked++, { weather: 'sunny' }) });
const agent = new Agent({ id: 'w', name: 'w', instructions: 'Answer.', model: { id: `hearth/${model}`, url: `${url}/v1`, apiKey: 'none' }, tools: { get_weather: weather } });
const result = await agent.generate('What is the weather in Paris?');
assert.equal(result.text, 'It is sunny in Paris today.');
const stream = await agent.stream('What is the weather in Paris?');
let text = '';
for await (const piece of stream.textStream) text += piece;
assert.equal(text, 'It is sunny in Paris today.');
assert.equal(asked, 2);
console.log('ok');
process.exit(0);
