// SPDX-License-Identifier: Apache-2.0
// ajv as the judge of schemas: a validator for the draft that a schema's $schema names, 2020-12 without one.
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const get = (name) => require(name).default ?? require(name);

// Throws where ajv is not installed.
export function loadAjv() {
  const seven = get('ajv');
  return { 4: get('ajv-draft-04'), 6: seven, 7: seven, 2019: get('ajv/dist/2019.js'), 2020: get('ajv/dist/2020.js'), formats: get('ajv-formats') };
}

export function draftOf(schema) {
  const uri = String(schema?.$schema ?? '');
  if (/draft-0[345]/.test(uri)) return 4;
  if (/draft-06/.test(uri)) return 6;
  if (/draft-07/.test(uri)) return 7;
  return /2019-09/.test(uri) ? 2019 : 2020;
}

// One class of ajv serves several drafts and reads what the older ones of them do not have.
const later = { 4: ['if', 'then', 'else', 'const', 'contains', 'propertyNames'], 6: ['if', 'then', 'else'] };

// Up to draft 7 a $ref is all that counts; ajv reads what stands beside it too.
function refsAlone(schema) {
  if (Array.isArray(schema)) return schema.map(refsAlone);
  if (schema === null || typeof schema !== 'object') return schema;
  if (typeof schema.$ref === 'string') return { $ref: schema.$ref };
  return Object.fromEntries(Object.entries(schema).map(([k, v]) => [k, refsAlone(v)]));
}

// The formats that a draft defines; what else ajv-formats has (int32, byte, url) is an annotation here.
const FORMATS = ['date-time', 'date', 'time', 'duration', 'email', 'hostname', 'ipv4', 'ipv6', 'uri', 'uri-reference', 'uri-template', 'uuid', 'json-pointer', 'relative-json-pointer', 'regex'];

// Throws where the schema is not one of its draft.
export function validatorFor(ajvs, schema) {
  const draft = draftOf(schema);
  // Decimal multiples are compared with a tolerance: 0.07 / 0.01 is not an integer in doubles.
  const ajv = new ajvs[draft]({ strict: false, logger: false, multipleOfPrecision: 9 });
  if (draft === 6) ajv.addMetaSchema(require('ajv/dist/refs/json-schema-draft-06.json'));
  for (const keyword of later[draft] ?? []) ajv.removeKeyword(keyword);
  ajvs.formats(ajv, FORMATS);
  if (draft > 7) return ajv.compile(schema);
  const { $schema, definitions, ...rest } = schema; // the root's siblings of a $ref: what it refers to stays
  return ajv.compile({ $schema, definitions: refsAlone(definitions ?? {}), ...refsAlone(rest) });
}
