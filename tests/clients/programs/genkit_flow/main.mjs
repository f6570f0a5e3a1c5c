// SPDX-License-Identifier: Apache-2.0
// Genkit with its OpenAI-compatible plugin: a tool's loop.
import assert from 'node:assert/strict';
import { openAICompatible } from '@genkit-ai/compat-oai';
import { genkit, z } from 'genkit';

const [url, model] = process.argv.slice(2);
let asked = 0;
const ai = genkit({ plugins: [openAICompatible({ name: 'hearth', apiKey: 'none', baseURL: `${url}/v1` })] });
const weather = ai.defineTool({ name: 'get_weather', description: 'Get the weather in a city', inputSchema: z.object({ city: z.string() }), outputSchema: z.string() },
  async ({ city }) => (asked++, `sunny in ${city}`));
const { text } = await ai.generate({ model: `hearth/${model}`, prompt: 'What is the weather in Paris?', tools: [weather] });
assert.equal(text, 'It is sunny in Paris today.');
assert.equal(asked, 1);
console.log('ok');
process.exit(0);
