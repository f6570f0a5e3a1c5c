// SPDX-License-Identifier: Apache-2.0
// docs/openapi.yaml against the real server with the demo model.
//
//   npm ci && node openapi.mjs HEARTH
//
// The description must be valid OpenAPI 3.1 and name exactly the routes of src/server/route.c and every member that the
// adapters read. Every example is sent: the answer has the status and type that the description gives it and fits the
// schema, in which no member may be missing (schemas are closed for this). Every described member of a request is sent
// once with a wrong type and once out of its range: the server must refuse both. Every operation is asked without a key.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync, writeFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runCases, startServer } from './server.mjs';

let YAML, Ajv, addFormats, Validator;
try {
  YAML = await import('yaml');
  ({ default: Ajv } = await import('ajv/dist/2020.js'));
  ({ default: addFormats } = await import('ajv-formats'));
  ({ Validator } = await import('@seriousme/openapi-schema-validator'));
} catch (error) {
  console.log(`skipped: the packages are not installed (npm ci in tests/api): ${error.message}`);
  process.exit(0);
}

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const doc = YAML.parse(readFileSync(join(root, 'docs', 'openapi.yaml'), 'utf8'));
const operations = Object.entries(doc.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, op]) => ({ path, method: method.toUpperCase(), op, at: ['paths', path, method] })));
const nameOf = (o) => `${o.method} ${o.path}`;

// --- schemas ---

// Closed copies: a member of an answer that is not described is an error.
function close(node) {
  if (Array.isArray(node)) return node.map(close);
  if (!node || typeof node !== 'object') return node;
  const out = Object.fromEntries(Object.entries(node).map(([k, v]) => [k, k === 'value' ? v : close(v)]));
  const isObject = out.type === 'object' || (Array.isArray(out.type) && out.type.includes('object'));
  if (isObject && out.properties && out.additionalProperties === undefined) out.additionalProperties = false;
  return out;
}
function validators(id, schema) {
  const ajv = new Ajv({ strict: false, allErrors: true });
  addFormats(ajv);
  ajv.addSchema({ ...schema, $id: id });
  return (value, ...pointer) => {
    const path = pointer.map((p) => encodeURIComponent(p.replaceAll('~', '~0').replaceAll('/', '~1'))).join('/');
    const check = ajv.getSchema(`${id}#/${path}`);
    assert.ok(check, `no schema at ${path}`);
    assert.ok(check(value), `${ajv.errorsText(check.errors)}\n${JSON.stringify(value).slice(0, 1500)}`);
  };
}
const fitsOpen = validators('open', doc);
const fits = validators('closed', close(doc));

// A reference is followed; the pointer of what it names comes back too.
function follow(node, pointer) {
  while (node?.$ref) {
    pointer = node.$ref.slice(2).split('/');
    node = pointer.reduce((o, k) => o[k], doc);
  }
  return [node, pointer];
}
function members(schema) {
  const [s] = follow(schema, []);
  return Object.assign({}, ...(s.allOf ?? []).map(members), s.properties);
}

// --- calls ---

let owner = {}; // the token of the server that answers without keys: settings are changed with it only

async function send(url, method, path, body, headers = owner) {
  const response = await fetch(url + path, {
    method,
    headers: { 'content-type': 'application/json', ...headers },
    body: body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body),
  });
  const text = response.ok && method === 'GET' && path.startsWith('/v1/events') ? await firstEvents(response) : await response.text();
  return { response, status: response.status, type: response.headers.get('content-type')?.split(';')[0], text };
}

// Of a stream that never ends: what comes until two events are complete.
async function firstEvents(response) {
  let text = '';
  const decoder = new TextDecoder();
  for await (const bytes of response.body) {
    text += decoder.decode(bytes, { stream: true });
    if (text.split('\n\n').length > 3) break;
  }
  return text.slice(0, text.lastIndexOf('\n\n') + 2);
}

// The examples of an operation: those of its body, or of its path's parameter, or one call without either.
function examplesOf({ path, op }) {
  const body = op.requestBody?.content['application/json'].examples;
  const parameter = (op.parameters ?? []).find((p) => p.in === 'path');
  const headers = Object.fromEntries((op.parameters ?? []).filter((p) => p.in === 'header').map((p) => [p.name, p.example]));
  const asked = (op.parameters ?? []).filter((p) => p.in === 'query').map((p) => `${p.name}=${encodeURIComponent(p.example)}`);
  const query = asked.length ? `?${asked.join('&')}` : '';
  const source = body ?? parameter?.examples ?? { default: {} };
  return Object.entries(source).map(([name, e]) => ({
    name, headers, body: body && e.value,
    path: (parameter ? path.replace(`{${parameter.name}}`, encodeURIComponent(e.value)) : path) + query,
    status: String(e['x-status'] ?? op['x-status'] ?? Object.keys(op.responses)[0]),
  }));
}

function* eventsOf(type, text) {
  if (type === 'application/x-ndjson') {
    for (const line of text.split('\n')) if (line) yield JSON.parse(line);
    return;
  }
  for (const block of text.split('\n\n')) {
    const data = block.split('\n').find((l) => l.startsWith('data: '))?.slice(6);
    if (data && data !== '[DONE]') yield JSON.parse(data);
  }
}

// One answer against the description: where it stands there, its type, its body.
function judge(o, status, answer, name) {
  assert.equal(String(answer.status), status, answer.text.slice(0, 500));
  const [response, pointer] = follow(o.op.responses[status] ?? o.op.responses.default, [...o.at, 'responses', status]);
  const media = response?.content?.[answer.type];
  assert.ok(media, `${status} ${answer.type} is not described`);
  const here = [...pointer, 'content', answer.type];
  const described = Object.entries(response.content).filter(([, m]) => m.examples?.[name]).map(([t]) => t);
  if (status[0] === '2') assert.deepEqual(described, [answer.type], `the response has an example '${name}' of this type`);
  if (media['x-event-schema']) {
    const events = [...eventsOf(answer.type, answer.text)];
    assert.ok(events.length > 0, 'the stream is empty');
    for (const event of events) fits(event, ...here, 'x-event-schema');
  } else {
    fits(answer.type === 'application/json' ? JSON.parse(answer.text) : answer.text, ...here, 'schema');
  }
  assert.match(answer.response.headers.get('x-request-id'), /^req-/);
}

// A request that goes on for a while, to have something to list and cancel.
async function startLong(url) {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'demo', messages: [{ role: 'user', content: 'Tell me a story.' }], n: 8, max_tokens: 900, ignore_eos: true, stream: true,
    }),
  });
  return { id: response.headers.get('x-request-id'), rest: response.text() };
}

async function callExamples(url, o) {
  for (const e of examplesOf(o)) {
    try {
      if (e.body !== undefined) {
        const schema = [...o.at, 'requestBody', 'content', 'application/json', 'schema'];
        const known = members(schema.reduce((n, k) => n[k], doc));
        for (const key of Object.keys(e.body)) assert.ok(known[key], `${key} is not described`);
        if (e.status[0] === '2') fitsOpen(e.body, ...schema);
      }
      const listed = ['requests', 'slots'].includes(o.op.operationId);
      const cancels = o.op.operationId === 'cancelRequest' && e.status === '200';
      const long = listed || cancels ? await startLong(url) : null;
      const answer = await send(url, o.method, cancels ? `/v1/requests/${long.id}/cancel` : e.path, e.body, { ...owner, ...e.headers });
      judge(o, e.status, answer, e.name);
      if (listed) assert.ok(answer.text.includes(long.id), 'the request under way is not listed');
      if (listed) await send(url, 'POST', `/v1/requests/${long.id}/cancel`);
      if (long) assert.match(await long.rest, /the request was cancelled/);
    } catch (error) {
      error.message = `example '${e.name}': ${error.message}`;
      throw error;
    }
  }
}

// --- what the description must hold ---

function routes() {
  const text = readFileSync(join(root, 'src', 'server', 'route.c'), 'utf8');
  return [...text.matchAll(/\{ "([A-Z]+)", "([^"]+)", &api_/g)].map((m) => `${m[1]} ${m[2]}`);
}

// Names of members in the calls of the reader (src/server/http/json_in.h) and in the table of sampling parameters.
function membersRead() {
  const names = new Set();
  for (const file of readdirSync(join(root, 'src', 'server'), { recursive: true }).filter((f) => f.endsWith('.c'))) {
    const text = readFileSync(join(root, 'src', 'server', file), 'utf8');
    for (const m of text.matchAll(/\b(?:read|need)_\w+\(&\w+(?:->x)?->in, [^,]+, "(\w+)"/g)) names.add(m[1]);
    for (const m of text.matchAll(/\bparams_\w+\(x, [^,]+, "(\w+)"/g)) names.add(m[1]);
  }
  const table = ['h', 'c'].map((e) => readFileSync(join(root, 'src', 'params', `sampling_table.${e}`), 'utf8')).join('');
  const rows = [...table.matchAll(/\bROW\(\w+, \w+, (?:REAL|INT), "(\w+)"/g)];
  assert.ok(rows.length > 20, `only ${rows.length} sampling parameters found`);
  for (const m of rows) names.add(m[1]);
  for (const m of table.matchAll(/BY_(?:OPENAI|OLLAMA|NATIVE), \w+, "(\w+)"/g)) names.add(m[1]);
  return names;
}
function membersDescribed(node, out = new Set()) {
  if (!node || typeof node !== 'object') return out;
  for (const [key, value] of Object.entries(node)) {
    if (key === 'properties') Object.keys(value).forEach((k) => out.add(k));
    if (key !== 'value') membersDescribed(value, out);
  }
  return out;
}

const wrongOf = { string: 7, integer: 'x', number: 'x', boolean: 'x', array: 'x', object: 'x', null: 7 };

// Values that the schema of a member excludes.
function wrongValues(schema) {
  const [s] = follow(schema, []);
  if (s.not && !Object.keys(s.not).length) return [{ a: 1 }];
  const types = [s, ...(s.oneOf ?? []), ...(s.allOf ?? [])].flatMap((v) => follow(v, [])[0].type ?? []);
  if (types.length === 0) return [];
  const out = [types.includes('string') && types.includes('number') ? {} : types.length > 1 ? 1.5 : wrongOf[types[0]]];
  if (s.maximum !== undefined) out.push(s.maximum + 1);
  if (s.minimum !== undefined) out.push(s.minimum - 1);
  if (s.enum) out.push('no-such-choice');
  if (s.maxItems < 1000) out.push(Array(s.maxItems + 1).fill('x'));
  if (s.minItems) out.push([]);
  if (s.minLength) out.push('');
  return out;
}

async function refuses(url, o) {
  const content = o.op.requestBody?.content['application/json'];
  if (!content) return 0;
  const good = examplesOf(o).find((e) => e.status[0] === '2') ?? examplesOf(o)[0];
  const cases = [];
  for (const [name, schema] of Object.entries(members(content.schema))) {
    const { [schema['x-alias-of']]: _, ...rest } = good.body; // another name is read where the first is absent
    for (const value of wrongValues(schema)) cases.push([name, { ...rest, [name]: value }]);
    if (name !== 'options') continue;
    for (const [inner, s] of Object.entries(members(schema)))
      for (const value of wrongValues(s)) cases.push([`options.${inner}`, { ...good.body, options: { [inner]: value } }]);
  }
  for (const name of follow(content.schema, [])[0].required ?? []) {
    const { [name]: _, ...rest } = good.body;
    cases.push([name, rest]);
  }
  for (const [name, body] of cases) {
    const answer = await send(url, o.method, good.path, body);
    assert.equal(answer.status, 400, `${name} in ${JSON.stringify(body).slice(0, 300)}: ${answer.text.slice(0, 300)}`);
    judge(o, '400', answer, '');
    assert.ok(answer.text.includes(name.split('.').pop()), `${name} is not named: ${answer.text}`);
  }
  return cases.length;
}

const hearth = process.argv[2];
const server = await startServer(hearth);
owner = { authorization: `Bearer ${server.token}` };
let refused = 0;
const cases = {
  'the description is valid OpenAPI 3.1': async () => {
    const validator = new Validator();
    const result = await validator.validate(structuredClone(doc));
    assert.ok(result.valid, JSON.stringify(result.errors, null, 1));
    assert.equal(validator.version, '3.1');
    assert.equal(doc.info.version, readFileSync(join(root, 'VERSION'), 'utf8').trim());
  },
  'every route is described, and nothing else': () => {
    assert.ok(routes().length > 30);
    assert.deepEqual(operations.map(nameOf).sort(), routes().sort());
  },
  'every member that an adapter reads is described': () => {
    const described = membersDescribed(doc);
    assert.ok(membersRead().size > 100, `only ${membersRead().size} members found`);
    assert.deepEqual([...membersRead()].filter((name) => !described.has(name)), []);
  },
  'the examples of responses fit their schemas': () => {
    for (const o of operations)
      for (const [status, response] of Object.entries(o.op.responses))
        for (const [type, media] of Object.entries(response.content ?? {}))
          for (const example of Object.values(media.examples ?? {})) {
            const here = [...o.at, 'responses', status, 'content', type];
            if (media['x-event-schema'])
              for (const event of eventsOf(type, example.value)) fits(event, ...here, 'x-event-schema');
            else fits(example.value, ...here, 'schema');
          }
  },
  ...Object.fromEntries(operations.map((o) => [`examples of ${nameOf(o)}`, () => callExamples(server.url, o)])),
  ...Object.fromEntries(operations.filter((o) => o.op.requestBody).map((o) =>
    [`wrong members of ${nameOf(o)}`, async () => { refused += await refuses(server.url, o); }])),
};
const good = await runCases(cases);
await server.stop();

// With a key, every operation that is not declared open must ask for it, in its protocol's shape.
const dir = mkdtempSync(join(tmpdir(), 'hearth-'));
writeFileSync(join(dir, 'keys'), 'test:secret-key-of-the-test\n', { mode: 0o600 });
const locked = await startServer(hearth, '--api-key-file', join(dir, 'keys'));
const safe = await runCases({
  'security': async () => {
    for (const o of operations) {
      const open = o.op.security && JSON.stringify(o.op.security) === '[{}]';
      const [e] = examplesOf(o);
      const bare = await send(locked.url, o.method, e.path, e.body, {});
      if (open) {
        judge(o, e.status, bare, e.name);
        continue;
      }
      if (o.op.responses.default) judge(o, '401', bare, '');
      else assert.equal(bare.status, 401, nameOf(o));
      for (const headers of [{ authorization: 'Bearer secret-key-of-the-test' }, { 'x-api-key': 'secret-key-of-the-test' }])
        assert.notEqual((await send(locked.url, 'HEAD', e.path, undefined, headers)).status, 401, nameOf(o));
    }
  },
});
await locked.stop();
rmSync(dir, { recursive: true });
console.log(`${operations.length} operations, ${refused} wrong requests refused`);
process.exit(good && safe ? 0 : 1);
