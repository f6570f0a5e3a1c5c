// SPDX-License-Identifier: Apache-2.0
// Constrained output whatever the logits say: small models with random weights, one per kind of family, answer under the
// 300 schemas of tests/schemas through the server (every schema on one of the models, in turn). Every answer that ended must be
// valid for ajv; every other one must say "length".
//
//   npm ci && node random_models.mjs HEARTH [EVERY]     EVERY 2: half of the schemas
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startServer } from './server.mjs';

const hearth = process.argv[2];
const every = Number(process.argv[3] ?? 1);
const families = ['llama', 'qwen3', 'gemma3', 'qwen2moe', 'deepseek2', 'qwen3next', 'lfm2', 'mamba2', 'phi3', 'olmo2'];
let Ajv, Ajv04, Ajv2019, Ajv2020, formats;
try {
  const require = createRequire(import.meta.url);
  const get = (name) => require(name).default ?? require(name);
  [Ajv, Ajv04, Ajv2019, Ajv2020, formats] = ['ajv', 'ajv-draft-04', 'ajv/dist/2019.js', 'ajv/dist/2020.js', 'ajv-formats'].map(get);
} catch {
  console.log('skipped: ajv is not installed (npm ci in tests/api)');
  process.exit(0);
}
const dir = mkdtempSync(join(tmpdir(), 'hearth-'));
const models = [];
for (const name of families) {
  const path = join(dir, `${name}.gguf`);
  try {
    execFileSync(hearth, ['debug', 'random-model', '--arch', name, '--dim', '128', '--layers', '2', '--vocab', '4000', '--type', 'Q8_0', path], { stdio: 'pipe' });
    models.push(['--model', `${name}=${path}`]);
  } catch (error) {
    console.log(`${name}: no such model: ${String(error.stderr).trim()}`);
  }
}
const server = await startServer(hearth, ...models.flat());
const names = models.map(([, spec]) => spec.split('=')[0]);
const cases = readFileSync(join(dirname(fileURLToPath(import.meta.url)), '../schemas/schemas.jsonl'), 'utf8').split('\n').filter(Boolean).map((l) => JSON.parse(l));
const count = { asked: 0, ended: 0, cut: 0, bad: 0 };
for (const [i, { name, schema }] of cases.entries()) {
  if (i % every) continue;
  const model = names[(i / every) % names.length];
  if (JSON.stringify(schema).includes('\\u0000')) continue; // the server refuses bodies with a NUL in a text
  const body = { model, prompt: 'x', json_schema: schema, seed: i, temperature: 1, max_tokens: 160 };
  const response = await fetch(`${server.url}/v1/completions`, { method: 'POST', body: JSON.stringify(body) });
  const answer = await response.json();
  count.asked++;
  if (response.status !== 200) {
    count.bad++;
    console.log(`${model} ${name}: ${JSON.stringify(answer)}`);
    continue;
  }
  const { text, finish_reason } = answer.choices[0];
  if (finish_reason === 'length') {
    count.cut++;
    continue;
  }
  count.ended++;
  const uri = String(schema?.$schema ?? '');
  const Judge = /draft-0[345]/.test(uri) ? Ajv04 : /draft-0[67]/.test(uri) ? Ajv : /2019-09/.test(uri) ? Ajv2019 : Ajv2020;
  const ajv = new Judge({ strict: false, logger: false, multipleOfPrecision: 9 });
  formats(ajv);
  let valid = false;
  try {
    valid = ajv.compile(schema)(JSON.parse(text));
  } catch {}
  if (!valid) {
    count.bad++;
    console.log(`${model} ${name}: not valid: ${text}`);
  }
}
await server.stop();
rmSync(dir, { recursive: true, force: true });
console.log(`${names.length} models: ${JSON.stringify(count)}`);
if (count.bad || !count.ended || names.length < 5) process.exit(1);
