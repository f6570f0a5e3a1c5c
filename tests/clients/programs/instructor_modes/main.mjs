// SPDX-License-Identifier: Apache-2.0
// Instructor: an object out of a text, in each of its modes that the endpoint's protocol still has.
import assert from 'node:assert/strict';
import instructor from '@instructor-ai/instructor';
import OpenAI from 'openai';
import { z } from 'zod/v3'; // the one it was made for

const [url, model] = process.argv.slice(2);
const Place = z.object({ city: z.string() });
for (const mode of ['TOOLS', 'FUNCTIONS', 'JSON', 'MD_JSON', 'JSON_SCHEMA']) {
  const client = instructor({ client: new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none' }), mode });
  const place = await client.chat.completions.create({
    model: ['TOOLS', 'FUNCTIONS'].includes(mode) ? model : `${model}_json`, max_retries: 0, messages: [{ role: 'user', content: 'Paris is a city.' }],
    response_model: { schema: Place, name: 'get_weather' },
  });
  assert.equal(place.city, 'Paris', mode);
}
console.log('ok');
