// SPDX-License-Identifier: Apache-2.0
// The parameters of both clients are those of docs/openapi.yaml: nothing is missing, nothing is made up.
//
//   (cd tests/api && npm ci) && node parameters.mjs [PYTHON]
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const python = process.argv[2] ?? 'python3';
const yaml = join(root, 'tests/api/node_modules/yaml/dist/index.js');
if (!existsSync(yaml)) {
  console.log('skipped: yaml is not installed (npm ci in tests/api)');
  process.exit(0);
}
const { parse } = (await import(pathToFileURL(yaml).href)).default;
const api = parse(readFileSync(join(root, 'docs/openapi.yaml'), 'utf8'));
const resolve = (s) => (s.$ref ? api.components.schemas[s.$ref.split('/').pop()] : s);

// Members of a request body that have an effect: without those that are ignored or refused.
function members(path, method = 'post') {
  const found = new Set();
  const walk = (schema) => {
    const s = resolve(schema);
    for (const part of s.allOf ?? []) walk(part);
    for (const [name, given] of Object.entries(s.properties ?? {})) {
      const ignored = given.$ref?.endsWith('/Ignored') || given.not || given['x-alias-of'] || /^Ignored|^Accepted without/.test(given.description ?? '');
      if (!ignored) found.add(name);
    }
  };
  walk(api.paths[path][method].requestBody.content['application/json'].schema);
  return found;
}

// What the clients leave to others, and why.
const aliases = ['repetition_penalty', 'max_completion_tokens', 'guided_json', 'guided_regex', 'guided_grammar', 'structured_outputs', 'functions', 'function_call'];
const theirs = ['model', 'messages', 'prompt', 'stream', 'stream_options']; // arguments and methods of their own
const unneeded = ['timings_per_token', 'modalities', 'encoding_format', 'with_pieces', 'content', 'tokens', 'input', 'query', 'documents'];
const dotted = /^speculative\./; // `speculative` has them all
const expected = (path) => [...members(path)].filter((n) => ![...aliases, ...theirs, ...unneeded].includes(n) && !dotted.test(n));
const ours = ['extra', 'response_schema', 'signal', 'model'];

const paths = { chat: '/v1/chat/completions', complete: '/v1/completions', render: '/apply-template' };
const lists = JSON.parse(execFileSync(python, ['-c', `
import json, sys
sys.path.insert(0, sys.argv[1])
from hearth import options as o
print(json.dumps({"chat": o.names_of(o.ChatOptions), "complete": o.names_of(o.CompleteOptions), "render": o.names_of(o.TemplateOptions)}))
`, join(root, 'sdk/python')], { encoding: 'utf8' }));
const source = readFileSync(join(root, 'sdk/typescript/src/names.ts'), 'utf8');
function listOf(name) { // of `const name = { ...another, member: true }`
  const [, text] = source.match(new RegExp(`const ${name}\\b[^=]*= \\{([^}]*)\\}`));
  return [...text.matchAll(/\.\.\.(\w+)|(\w+): true/g)].flatMap(([, spread, n]) => (spread ? listOf(spread) : [n]));
}
const typescript = { chat: listOf('chat'), complete: listOf('complete'), render: listOf('template') };

let failed = 0;
for (const [language, known] of [['Python', lists], ['TypeScript', typescript]]) {
  for (const [method, path] of Object.entries(paths)) {
    try {
      assert.deepEqual([...new Set(known[method])].filter((n) => !ours.includes(n)).sort(), expected(path).sort());
      console.log(`check ok: ${language}, ${method}`);
    } catch (error) {
      failed++;
      console.log(`check FAILED: ${language}, ${method}: ${error.message}`);
    }
  }
}
process.exit(failed ? 1 : 0);
