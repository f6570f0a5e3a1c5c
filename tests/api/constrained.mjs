// SPDX-License-Identifier: Apache-2.0
// Random texts under the schemas of tests/schemas (or another file of the same form), judged by a validator that is not
// ours: every text that ended must be valid, every other one must have stopped at the token limit.
//
//   npm ci && node constrained.mjs HEARTH MODEL [COUNT [SEED [SCHEMAS]]]
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadAjv, validatorFor } from './judge.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const [hearth, model, count = '3', seed = '1', file = join(here, '../schemas/schemas.jsonl')] = process.argv.slice(2);
if (!hearth || !model) {
  console.error('usage: node constrained.mjs HEARTH MODEL [COUNT [SEED [SCHEMAS]]]');
  process.exit(2);
}
let ajvs;
try {
  ajvs = loadAjv();
} catch {
  console.log('skipped: ajv is not installed (npm ci in tests/api)');
  process.exit(0);
}

const lines = (text) => text.split('\n').filter(Boolean).map((line) => JSON.parse(line));
const input = readFileSync(file, 'utf8');
const schemas = new Map(lines(input).map((c) => [c.name, c.schema]));

const validators = new Map();
function validatorOf(name) {
  if (!validators.has(name)) validators.set(name, validatorFor(ajvs, schemas.get(name)));
  return validators.get(name);
}

const command = ['debug', 'sample', '--vocab', model, '--count', count, '--seed', seed];
const output = execFileSync(hearth, command, { input, maxBuffer: 1 << 30, stdio: ['pipe', 'pipe', 'inherit'] });
const walks = lines(output.toString('utf8'));
const seen = new Set();
let stopped = 0;
let bad = 0;
for (const walk of walks) {
  if (walk.finish === 'refused') {
    console.log(`${walk.name}: refused: ${walk.reason}`);
    continue;
  }
  seen.add(walk.name);
  if (walk.finish !== 'stop') continue;
  stopped++;
  try {
    const validate = validatorOf(walk.name);
    if (!validate(JSON.parse(walk.text))) throw new Error(JSON.stringify(validate.errors[0]));
  } catch (e) {
    bad++;
    console.log(`${walk.name}: ${e.message}: ${walk.text.slice(0, 300)}`);
  }
}
console.log(JSON.stringify({ schemas: seen.size, texts: walks.length, stopped, valid: stopped - bad, invalid: bad }));
process.exit(bad || seen.size !== schemas.size || stopped * 2 < walks.length ? 1 : 0);
