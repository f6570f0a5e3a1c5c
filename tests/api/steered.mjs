// SPDX-License-Identifier: Apache-2.0
// What a steered text must be beyond valid, asked of ajv and of JavaScript's own JSON: no name that its schema does not
// list, no integer with a fraction or an exponent, no escape that JSON does not demand.
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const ajvFormats = require('ajv-formats').default ?? require('ajv-formats');
const isObject = (v) => v !== null && typeof v === 'object' && !Array.isArray(v);
const VALUES = ['items', 'additionalProperties', 'additionalItems', 'unevaluatedProperties', 'unevaluatedItems', 'contains'];
const MAPS = ['properties', 'patternProperties', '$defs', 'definitions'];
const SAME = ['allOf', 'anyOf', 'oneOf'];

function target(root, ref) {
  if (ref === '#') return root;
  if (!ref.startsWith('#/')) return undefined;
  return ref.slice(2).split('/').reduce((at, key) => at?.[decodeURIComponent(key).replaceAll('~1', '/').replaceAll('~0', '~')], root);
}

// Its values are given, or not objects: nothing is to be closed.
function isFixed(root, s, depth = 0) {
  if (!isObject(s) || depth > 20) return false;
  return 'enum' in s || 'const' in s || (s.type !== undefined && ![s.type].flat().includes('object')) ||
    (s.allOf ?? []).some((one) => isFixed(root, one, depth + 1)) || (typeof s.$ref === 'string' && isFixed(root, target(root, s.$ref), depth + 1));
}

// Whether an object that is valid here has its names listed, whichever alternatives it takes.
function lists(root, s, depth = 0) {
  if (!isObject(s) || depth > 20) return false;
  const every = (list) => Array.isArray(list) && list.length > 0 && list.every((one) => lists(root, one, depth + 1));
  const declared = isObject(s.properties) && (!Object.keys(s.properties).length || Object.values(s.properties).some((v) => v !== false));
  return isFixed(root, s) || declared || every(s.anyOf) || every(s.oneOf) ||
    (s.allOf ?? []).some((one) => lists(root, one, depth + 1)) || (typeof s.$ref === 'string' && lists(root, target(root, s.$ref), depth + 1));
}

// Names that are not in properties and count all the same: those that must be there, and those of if, then and else,
// which ajv does not see as evaluated.
function demanded(root, s, depth = 0) {
  if (!isObject(s) || depth > 20) return [];
  const inner = [...SAME.flatMap((k) => s[k] ?? []), s.then, s.else, ...Object.values(s.dependencies ?? {}), ...Object.values(s.dependentSchemas ?? {})];
  const dependent = Object.values({ ...s.dependencies, ...s.dependentRequired }).flat().filter((v) => typeof v === 'string');
  const own = [...(Array.isArray(s.required) ? s.required : []), ...[s.if, s.then, s.else].flatMap((one) => Object.keys(one?.properties ?? {}))];
  return [...own, ...dependent, ...inner.flatMap((one) => demanded(root, one, depth + 1)), ...(s.$ref ? demanded(root, target(root, s.$ref), depth + 1) : [])];
}

// The schema with unevaluatedProperties: false wherever an object's names are listed; what it says of anything else is
// left out, because ajv judges that by itself.
function closed(root, s, inPlace) {
  if (!isObject(s)) return s;
  const out = {};
  for (const [k, v] of Object.entries(s)) {
    if (['$schema', 'minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'format', 'multipleOf', 'id', '$id', 'if', 'then', 'else'].includes(k)) continue;
    if (VALUES.includes(k)) out[k] = Array.isArray(v) ? v.map((one) => closed(root, one, false)) : closed(root, v, false);
    else if (k === 'prefixItems') out[k] = v.map((one) => closed(root, one, false));
    else if (MAPS.includes(k)) out[k] = Object.fromEntries(Object.entries(v).map(([name, one]) => [name, closed(root, one, /\$?def/.test(k))]));
    else if (SAME.includes(k)) out[k] = v.map((one) => closed(root, one, true));
    else if (k === 'required' && !Array.isArray(v)) continue;
    else out[k] = v;
  }
  if (inPlace || 'additionalProperties' in s || 'unevaluatedProperties' in s || 'minProperties' in s || isFixed(root, s) || !lists(root, s)) return out;
  const names = Object.fromEntries(demanded(root, s).filter((name) => !out.properties || !(name in out.properties)).map((name) => [name, true]));
  return { ...out, properties: { ...out.properties, ...names }, unevaluatedProperties: false };
}

const STRING = /"(?:[^"\\]|\\.)*"/gs;

export function steeringOf(ajvs, schema) {
  const ajv = new ajvs[2019]({ strict: false, logger: false, allErrors: true, validateSchema: false });
  ajvFormats(ajv);
  let names = null;
  try {
    names = ajv.compile(closed(schema, schema, false));
  } catch {
    names = null; // ajv cannot say: a reference by $id
  }
  const integers = new ajvs[2019]({ strict: false, logger: false, allErrors: true, validateSchema: false, validateFormats: false });
  return (text) => {
    for (const raw of text.match(STRING) ?? []) {
      const plain = JSON.stringify(JSON.parse(raw));
      if (plain.toLowerCase() !== raw.toLowerCase()) return `an escape that is not needed: ${raw.slice(0, 80)}`;
    }
    if (names && !names(JSON.parse(text))) {
      const extra = names.errors.find((e) => e.keyword === 'unevaluatedProperties');
      if (extra) return `an undeclared name: ${extra.instancePath}/${extra.params.unevaluatedProperty}`;
    }
    // A whole number that is written with a point or an exponent becomes a fraction: no integer may be one.
    const moved = text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/gs, (m) => (m[0] !== '"' && /[.eE]/.test(m) && Number.isInteger(Number(m)) ? '0.5' : m));
    if (moved !== text) {
      let judge;
      try {
        judge = integers.getSchema('s') ?? integers.addSchema(closed(schema, schema, true), 's').getSchema('s');
      } catch {
        return null;
      }
      if (!judge(JSON.parse(moved)) && judge.errors.every((e) => e.keyword === 'type' && e.params.type === 'integer')) return 'an integer with a fraction or an exponent';
    }
    return null;
  };
}
