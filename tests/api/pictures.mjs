// SPDX-License-Identifier: Apache-2.0
// The official clients send a picture each to a tiny model that sees (vision_model.py): all get the same answer, another one for
// another picture.
//
//   npm ci && node pictures.mjs HEARTH
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runCases, startServer } from './server.mjs';

let OpenAI, Ollama, Anthropic, ai, createOpenAICompatible;
try {
  ({ default: OpenAI } = await import('openai'));
  ({ Ollama } = await import('ollama'));
  ({ default: Anthropic } = await import('@anthropic-ai/sdk'));
  ai = await import('ai');
  ({ createOpenAICompatible } = await import('@ai-sdk/openai-compatible'));
} catch (error) {
  console.log(`skipped: the clients are not installed (npm ci in tests/api): ${error.message}`);
  process.exit(0);
}

const here = dirname(fileURLToPath(import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'hearth-eyes-'));
const model = 'qwen3_vl';
execFileSync('python3', ['-c', 'import sys; sys.path.insert(0, sys.argv[1]); import vision_model; vision_model.make(sys.argv[2], sys.argv[3])',
  here, model, join(folder, model)]);
const server = await startServer(process.argv[2], '--model', `${model}=${join(folder, model)}`);
const picture = (name) => readFileSync(join(here, `../golden/vision/pictures/${name}.png`));
const plain = (name) => picture(name).toString('base64');
const uri = (name) => `data:image/png;base64,${plain(name)}`;

const openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0 });
const ollama = new Ollama({ host: server.url });

const chat = async (name) => {
  const content = [{ type: 'image_url', image_url: { url: uri(name) } }, { type: 'text', text: 'What?' }];
  const got = await openai.chat.completions.create({ model, temperature: 0, max_tokens: 8, logprobs: true,
    messages: [{ role: 'user', content }] });
  return got.choices[0];
};
const first = await chat('a');
const want = first.message.content;

const ok = await runCases({
  'openai: chat.completions': async () => {
    assert.ok(want.length > 0);
    assert.deepEqual((await chat('a')).logprobs, first.logprobs);
    assert.notDeepEqual((await chat('d')).logprobs, first.logprobs);
  },
  'openai: responses': async () => {
    const content = [{ type: 'input_image', image_url: uri('a'), detail: 'auto' }, { type: 'input_text', text: 'What?' }];
    const got = await openai.responses.create({ model, temperature: 0, max_output_tokens: 8, input: [{ role: 'user', content }] });
    assert.equal(got.output_text, want);
  },
  'openai: a stream': async () => {
    const content = [{ type: 'image_url', image_url: { url: uri('a') } }, { type: 'text', text: 'What?' }];
    const stream = await openai.chat.completions.create({ model, temperature: 0, max_tokens: 8, stream: true, messages: [{ role: 'user', content }] });
    let text = '';
    for await (const piece of stream) text += piece.choices[0]?.delta?.content ?? '';
    assert.equal(text, want);
  },
  'openai: an address is refused by name': async () => {
    const content = [{ type: 'image_url', image_url: { url: 'https://example.com/cat.png' } }];
    await assert.rejects(openai.chat.completions.create({ model, max_tokens: 1, messages: [{ role: 'user', content }] }), /not fetched/);
  },
  'anthropic: messages': async () => {
    const source = { type: 'base64', media_type: 'image/png', data: plain('a') };
    const got = await anthropic.messages.create({ model, temperature: 0, max_tokens: 8,
      messages: [{ role: 'user', content: [{ type: 'image', source }, { type: 'text', text: 'What?' }] }] });
    assert.equal(got.content[0].text, want);
  },
  'ollama: chat and generate': async () => {
    const options = { temperature: 0, num_predict: 8 };
    const got = await ollama.chat({ model, options, messages: [{ role: 'user', content: 'What?', images: [new Uint8Array(picture('a'))] }] });
    assert.equal(got.message.content, want);
    const other = await ollama.generate({ model, options, prompt: 'What?', images: [plain('a')] });
    assert.equal(other.response, want);
    assert.ok((await ollama.show({ model })).capabilities.includes('vision'));
  },
  'ai-sdk: generateText': async () => {
    const provider = createOpenAICompatible({ name: 'hearth', baseURL: `${server.url}/v1` });
    const got = await ai.generateText({ model: provider(model), temperature: 0, maxOutputTokens: 8, maxRetries: 0,
      messages: [{ role: 'user', content: [{ type: 'image', image: picture('a') }, { type: 'text', text: 'What?' }] }] });
    assert.equal(got.text, want);
  },
});
await server.stop();
rmSync(folder, { recursive: true, force: true });
process.exit(ok ? 0 : 1);
