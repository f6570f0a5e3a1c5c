// SPDX-License-Identifier: Apache-2.0
// @openai/agents: a run with a tool, on the responses endpoint (its default) and on chat completions.
import assert from 'node:assert/strict';
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from '@openai/agents';
import { z } from 'zod';

const [url, model] = process.argv.slice(2);
setTracingDisabled(true);
let asked = 0;
const weather = tool({ name: 'get_weather', description: 'Get the weather in a city', parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => (asked++, `sunny in ${city}`) });
for (const useResponses of [true, false]) {
  const runner = new Runner({ modelProvider: new OpenAIProvider({ apiKey: 'none', baseURL: `${url}/v1`, useResponses }) });
  const agent = new Agent({ name: 'w', instructions: 'Answer.', model, tools: [weather] });
  const result = await runner.run(agent, 'What is the weather in Paris?');
  assert.equal(result.finalOutput, 'It is sunny in Paris today.');
  const streamed = await runner.run(agent, 'What is the weather in Paris?', { stream: true });
  for await (const event of streamed) assert.ok(event.type);
  await streamed.completed;
  assert.equal(streamed.finalOutput, 'It is sunny in Paris today.');
}
assert.equal(asked, 4);
console.log('ok');
process.exit(0);
