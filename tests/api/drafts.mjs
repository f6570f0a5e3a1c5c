// SPDX-License-Identifier: Apache-2.0
// Every keyword under every draft: small schemas that name a draft, with instances that ajv judges. Hearth accepts what ajv
// accepts, rejects what it rejects, and refuses what is not a schema under its draft.
//
//   npm ci && node drafts.mjs HEARTH MODEL
import { execFileSync } from 'node:child_process';
import { loadAjv, validatorFor } from './judge.mjs';

const [hearth, model] = process.argv.slice(2);
if (!hearth || !model) {
  console.error('usage: node drafts.mjs HEARTH MODEL');
  process.exit(2);
}
let ajvs;
try {
  ajvs = loadAjv();
} catch {
  console.log('skipped: ajv is not installed (npm ci in tests/api)');
  process.exit(0);
}

const drafts = {
  4: 'http://json-schema.org/draft-04/schema#',
  6: 'http://json-schema.org/draft-06/schema#',
  7: 'http://json-schema.org/draft-07/schema#',
  2019: 'https://json-schema.org/draft/2019-09/schema',
  2020: 'https://json-schema.org/draft/2020-12/schema',
};
const numbers = [0, 1, 2, 3, 5, 10, 11];
const objects = [{}, { a: 1 }, { a: 2 }, { b: 1 }, { a: 1, b: 1 }, { a: 1, b: 2 }, { a: 2, b: 2 }, { c: 'x' }, { a: 1, c: 'x' }];
const arrays = [[], [1], [2], ['x'], [1, 1], [1, 'x'], ['x', 1], ['x', 'y'], [1, 2, 3], ['x', 1, true], ['x', 1, 'y'], [1, 1, 'x']];
const int = { type: 'integer' };
const str = { type: 'string' };
const one = { enum: [1] };
const requires = (name) => ({ required: [name] });
const a1 = { properties: { a: one }, required: ['a'] };

const cases = {
  'if then': [{ if: a1, then: requires('b') }, objects],
  'if else': [{ if: a1, else: requires('b') }, objects],
  'if then else of numbers': [{ type: 'integer', if: { minimum: 5 }, then: { maximum: 10 }, else: { minimum: 2 } }, numbers],
  'then alone': [{ then: requires('b') }, objects],
  'if in allOf': [{ type: 'object', allOf: [{ if: a1, then: requires('b') }] }, objects],
  'not if': [{ type: 'object', anyOf: [{ not: { if: a1, then: requires('b') } }, requires('c')] }, objects],
  'if beside a type': [{ not: { type: 'object', if: a1, then: requires('b') } }, objects],
  const: [{ type: 'integer', const: 1 }, numbers],
  'const of an object': [{ type: 'object', const: { a: 1 } }, objects],
  'const kinds in oneOf': [{ oneOf: [{ type: 'object', properties: { a: { const: 1 } }, required: ['a'] }, { type: 'object', properties: { a: { const: 2 } }, required: ['a'] }, { type: 'object', required: ['c'] }] }, objects],
  'not const': [{ type: 'integer', anyOf: [{ not: { type: 'integer', const: 1 } }, { minimum: 10 }] }, numbers],
  'not enum of an array': [{ type: 'array', not: { enum: [[1, 1]] } }, arrays],
  'not enum of an object': [{ type: 'object', not: { enum: [{ a: 1, b: 2 }] } }, objects],
  contains: [{ type: 'array', contains: one }, arrays],
  'not contains': [{ type: 'array', anyOf: [{ not: { contains: one } }, { maxItems: 1 }] }, arrays],
  'minContains 0': [{ type: 'array', contains: one, minContains: 0 }, arrays],
  'minContains 1': [{ type: 'array', contains: one, minContains: 1 }, arrays],
  propertyNames: [{ type: 'object', propertyNames: { pattern: '^[ab]$' } }, objects],
  'propertyNames by enum': [{ type: 'object', propertyNames: { enum: ['a'] } }, objects],
  'exclusive flags': [{ type: 'integer', minimum: 2, exclusiveMinimum: true, maximum: 10, exclusiveMaximum: true }, numbers],
  'exclusive flags, off': [{ type: 'integer', minimum: 2, exclusiveMinimum: false }, numbers],
  'exclusive numbers': [{ type: 'integer', exclusiveMinimum: 2, exclusiveMaximum: 10 }, numbers],
  'not exclusive number': [{ type: 'integer', not: { exclusiveMinimum: 2 } }, numbers],
  'not exclusive flag': [{ type: 'integer', not: { minimum: 2, exclusiveMinimum: true } }, numbers],
  bounds: [{ type: 'integer', minimum: 2, maximum: 10, multipleOf: 5 }, numbers],
  dependencies: [{ type: 'object', dependencies: { a: ['b'] } }, objects],
  'dependencies on a schema': [{ type: 'object', dependencies: { a: { properties: { b: one } } } }, objects],
  dependentRequired: [{ type: 'object', dependentRequired: { a: ['b'] } }, objects],
  dependentSchemas: [{ type: 'object', dependentSchemas: { a: { properties: { b: one } } } }, objects],
  'not dependentRequired': [{ type: 'object', anyOf: [{ not: { type: 'object', dependentRequired: { a: ['b'] } } }, requires('c')] }, objects],
  unevaluatedProperties: [{ type: 'object', properties: { a: int }, unevaluatedProperties: false }, objects],
  'unevaluatedProperties of a type': [{ type: 'object', properties: { a: int }, unevaluatedProperties: int }, objects],
  'unevaluatedItems, no tuple': [{ type: 'array', unevaluatedItems: int }, arrays],
  'unevaluatedItems behind items': [{ type: 'array', items: str, unevaluatedItems: false }, arrays],
  'unevaluatedItems behind prefixItems': [{ type: 'array', prefixItems: [str], unevaluatedItems: int }, arrays],
  prefixItems: [{ type: 'array', prefixItems: [str, int] }, arrays],
  'prefixItems and items': [{ type: 'array', prefixItems: [str], items: int }, arrays],
  'items as a tuple': [{ type: 'array', items: [str, int] }, arrays],
  'closed tuple': [{ type: 'array', items: [str, int], additionalItems: false }, arrays],
  'tuple and additionalItems': [{ type: 'array', items: [str, int], additionalItems: str }, arrays],
  'tuple, additionalItems, unevaluatedItems': [{ type: 'array', items: [str], additionalItems: int, unevaluatedItems: false }, arrays],
  'additionalItems alone': [{ type: 'array', additionalItems: str }, arrays],
  'additionalItems beside items': [{ type: 'array', items: int, additionalItems: false }, arrays],
  'additionalItems beside prefixItems': [{ type: 'array', prefixItems: [str], additionalItems: int }, arrays],
  items: [{ type: 'array', items: int, minItems: 1, maxItems: 2 }, arrays],
  'beside a $ref': [{ definitions: { i: int }, properties: { a: { $ref: '#/definitions/i', minimum: 2 } }, type: 'object' }, objects],
  'if beside a $ref': [{ definitions: { i: int }, type: 'object', properties: { a: { $ref: '#/definitions/i', if: true, then: { minimum: 2 } } } }, objects],
  'not, beside a $ref': [{ definitions: { i: int }, type: 'object', not: { properties: { a: { $ref: '#/definitions/i', minimum: 2 } } } }, objects],
  $defs: [{ $defs: { i: { type: 'integer', minimum: 2 } }, type: 'object', properties: { a: { $ref: '#/$defs/i' } } }, objects],
  properties: [{ type: 'object', properties: { a: one }, patternProperties: { '^c': { maxLength: 0 } }, additionalProperties: int, minProperties: 1, maxProperties: 2 }, objects],
  minProperties: [{ type: 'object', propertyNames: { enum: ['a', 'b', 'c'] }, properties: { a: int, b: int, c: str }, additionalProperties: false, minProperties: 2 }, objects],
  uniqueItems: [{ type: 'array', uniqueItems: true, items: { enum: [1, 2, 3, 'x', 'y', true] }, maxItems: 3 }, arrays],
  'oneOf and anyOf': [{ oneOf: [requires('a'), requires('b')], anyOf: [a1, { type: 'object' }], type: 'object' }, objects],
};

const input = [];
const invalid = new Set(); // not a schema under its draft
let instances = 0;
for (const [draft, $schema] of Object.entries(drafts)) {
  for (const [what, [schema, data]] of Object.entries(cases)) {
    const name = `${what}, draft ${draft}`;
    const named = { $schema, ...schema };
    let tests = [];
    try {
      const validate = validatorFor(ajvs, named);
      tests = data.map((d) => ({ valid: validate(d), data: d }));
    } catch {
      invalid.add(name);
    }
    instances += tests.length;
    input.push(JSON.stringify({ name, schema: named, tests }));
  }
}

const output = execFileSync(hearth, ['debug', 'masks', '--vocab', model], { input: input.join('\n') + '\n', maxBuffer: 1 << 28 });
const results = output.toString('utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line)).filter((r) => r.name);
let bad = results.length === input.length ? 0 : 1;
for (const r of results) {
  if (r.status === (invalid.has(r.name) ? 'refused' : 'passed')) continue;
  bad++;
  console.log(`${invalid.has(r.name) ? 'ajv refuses: ' : ''}${JSON.stringify(r)}`);
}
console.log(JSON.stringify({ schemas: input.length, instances, refused: invalid.size, bad }));
process.exit(bad ? 1 : 0);
