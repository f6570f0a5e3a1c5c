// SPDX-License-Identifier: Apache-2.0
// Random texts under the schemas of tests/schemas (or another file of the same form), judged by a validator that is not
// ours: every text that ended must be valid, every other one must have stopped at the token limit. With --steered the
// texts are of the part of the language that requests get, and steered.mjs says what they must be beyond that; the
// schemas that are refused must be the same ones.
//
//   npm ci && node constrained.mjs HEARTH MODEL [--steered] [COUNT [SEED [SCHEMAS [EVERY]]]]
//
// EVERY: that many lines of the file make one schema that is used.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadAjv, validatorFor } from './judge.mjs';
import { steeringOf } from './steered.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const steered = process.argv.includes('--steered');
const [hearth, model, count = '3', seed = '1', file = join(here, '../schemas/schemas.jsonl'), every = '1'] = process.argv.slice(2).filter((a) => a !== '--steered');
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
const input = readFileSync(file, 'utf8').split('\n').filter((line, i) => line && i % Number(every) === 0).join('\n');
const schemas = new Map(lines(input).map((c) => [c.name, c.schema]));

const kept = new Map();
function judgesOf(name) {
  if (!kept.has(name)) {
    try {
      kept.set(name, { validate: validatorFor(ajvs, schemas.get(name)), steering: steered ? steeringOf(ajvs, schemas.get(name)) : () => null });
    } catch (e) {
      if (!steered) throw e;
      kept.set(name, null); // a public sample has schemas that ajv refuses
    }
  }
  return kept.get(name);
}

function sample(...more) {
  const command = ['debug', 'sample', '--vocab', model, '--seed', seed, ...more];
  return lines(execFileSync(hearth, command, { input, maxBuffer: 1 << 30, stdio: ['pipe', 'pipe', 'inherit'] }).toString('utf8'));
}
const walks = sample('--count', count, ...(steered ? ['--steered'] : []));
const refused = walks.filter((w) => w.finish === 'refused').length;
const seen = new Set();
const unjudged = new Set();
let stopped = 0;
let bad = 0;
for (const walk of walks) {
  if (walk.finish === 'refused') {
    if (!steered) console.log(`${walk.name}: refused: ${walk.reason}`);
    continue;
  }
  seen.add(walk.name);
  if (walk.finish !== 'stop') continue;
  try {
    const judges = judgesOf(walk.name);
    if (!judges) {
      unjudged.add(walk.name);
      continue;
    }
    stopped++;
    const { validate, steering } = judges;
    if (!validate(JSON.parse(walk.text))) throw new Error(JSON.stringify(validate.errors[0]));
    const complaint = steering(walk.text);
    if (complaint) throw new Error(complaint);
  } catch (e) {
    bad++;
    console.log(`${walk.name}: ${e.message}: ${walk.text.slice(0, 300)}`);
  }
}
const before = steered ? sample('--count', '0').length : 0;
if (refused !== before) console.log(`${refused} schemas are refused, ${before} without steering`);
console.log(JSON.stringify({ schemas: seen.size, refused, texts: walks.length - refused, stopped, valid: stopped - bad, invalid: bad, unjudged: unjudged.size }));
const all = steered ? refused === before : seen.size === schemas.size;
process.exit(bad || !all || stopped * 2 < walks.length ? 1 : 0);
