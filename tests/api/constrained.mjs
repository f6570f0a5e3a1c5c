// SPDX-License-Identifier: Apache-2.0
// Random texts under the schemas of tests/schemas (or another file of the same form), judged by a validator that is not
// ours: every text that ended must be valid, every other one must have stopped at the token limit.
//
//   npm ci && node constrained.mjs HEARTH MODEL [COUNT [SEED [SCHEMAS]]]
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const [hearth, model, count = '3', seed = '1', file = join(here, '../schemas/schemas.jsonl')] = process.argv.slice(2);
if (!hearth || !model) {
  console.error('usage: node constrained.mjs HEARTH MODEL [COUNT [SEED [SCHEMAS]]]');
  process.exit(2);
}
let ajvs;
try {
  const require = createRequire(import.meta.url);
  const get = (name) => require(name).default ?? require(name);
  ajvs = { 4: get('ajv-draft-04'), 7: get('ajv'), 2019: get('ajv/dist/2019.js'), 2020: get('ajv/dist/2020.js') };
  ajvs.formats = get('ajv-formats');
} catch {
  console.log('skipped: ajv is not installed (npm ci in tests/api)');
  process.exit(0);
}

const lines = (text) => text.split('\n').filter(Boolean).map((line) => JSON.parse(line));
const input = readFileSync(file, 'utf8');
const schemas = new Map(lines(input).map((c) => [c.name, c.schema]));

function draftOf(schema) {
  const uri = String(schema?.$schema ?? '');
  if (/draft-0[345]/.test(uri)) return 4;
  if (/draft-0[67]/.test(uri)) return 7;
  return /2019-09/.test(uri) ? 2019 : 2020;
}

const validators = new Map();
function validatorOf(name) {
  if (!validators.has(name)) {
    const schema = schemas.get(name);
    // Decimal multiples are compared with a tolerance: 0.07 / 0.01 is not an integer in doubles.
    const ajv = new ajvs[draftOf(schema)]({ strict: false, logger: false, multipleOfPrecision: 9 });
    ajvs.formats(ajv);
    validators.set(name, ajv.compile(schema));
  }
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
