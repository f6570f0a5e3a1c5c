// SPDX-License-Identifier: Apache-2.0
// gRPC as its official client for Node sees it: every method of proto/ against a real server, compared with the REST
// paths; streams, cancelling, deadlines, errors, TLS and the Unix socket.
//   node grpc.mjs path/to/hearth
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import http2 from 'node:http2';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { runCases, startServer } from './server.mjs';

const hearth = process.argv[2];
const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
let grpc, loader;
try {
  grpc = (await import('@grpc/grpc-js')).default;
  loader = (await import('@grpc/proto-loader')).default;
} catch {
  console.log('skipped: @grpc/grpc-js is not installed (npm ci in tests/api)');
  process.exit(0);
}

const options = { keepCase: true, longs: Number, enums: String, oneofs: true, defaults: false, arrays: true };
const files = ['inference', 'text', 'models'].map((f) => `hearth/v1/${f}.proto`);
const api = grpc.loadPackageDefinition(loader.loadSync(files, { ...options, includeDirs: [join(root, 'proto')] })).hearth.v1;
const known = grpc.loadPackageDefinition(
  loader.loadSync(['health/v1/health.proto', 'reflection/v1/reflection.proto', 'reflection/v1alpha/reflection.proto'].map((f) => `grpc/${f}`), { ...options, includeDirs: [join(root, 'tests/api/proto')] }),
).grpc;

const demo = `demo=${join(root, 'models/demo/demo.gguf')}`;
const server = await startServer(hearth, '--model', demo);
const address = server.url.replace('http://', '');
const plain = grpc.credentials.createInsecure();
const inference = new api.Inference(address, plain);
const text = new api.Text(address, plain);
const models = new api.Models(address, plain);
const health = new known.health.v1.Health(address, plain);

// A call with one answer: {answer, metadata, trailers}; rejects with the status.
function ask(client, method, request, extra = {}) {
  return new Promise((resolve, reject) => {
    let metadata;
    const call = client[method](request, extra.metadata ?? new grpc.Metadata(), extra.options ?? {}, (error, answer) =>
      error ? reject(error) : resolve({ answer, metadata }),
    );
    call.on('metadata', (m) => (metadata = m));
  });
}

// A call with many: all messages; rejects with the status.
function gather(client, method, request, extra = {}) {
  return new Promise((resolve, reject) => {
    const list = [];
    const call = client[method](request, extra.metadata ?? new grpc.Metadata(), extra.options ?? {});
    call.on('data', (m) => {
      list.push(m);
      extra.each?.(m, call);
    });
    call.on('error', reject);
    call.on('end', () => resolve(list));
  });
}

async function rest(path, body, expected = 200) {
  const r = await fetch(server.url + path, body && { method: 'POST', body: JSON.stringify(body) });
  assert.equal(r.status, expected, path);
  return r.json();
}

async function refused(promise, code, words) {
  const error = await promise.then(
    () => assert.fail('it was not refused'),
    (e) => e,
  );
  assert.equal(error.code, code, error.message);
  if (words) assert.match(error.details, words);
  return error;
}

async function idle() {
  for (let i = 0; i < 200; i++) {
    if ((await rest('/v1/requests')).data.length === 0) return;
    await new Promise((done) => setTimeout(done, 25));
  }
  assert.fail('requests are still running');
}

const messages = [{ role: 'user', content: 'Tell me about the weather in Paris.' }];
const sampling = { temperature: 0.8, seed: 7, logit_bias: { 5: -1.5 } };
const chat = { model: 'demo', messages, max_tokens: 40, sampling };
const chatRest = { model: 'demo', messages, max_tokens: 40, ...sampling };
const finishes = { stop: 'FINISH_STOP', length: 'FINISH_LENGTH', tool_calls: 'FINISH_TOOL_CALLS' };
const tool = { name: 'weather', description: 'The weather', parameters: '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}' };
const toolRest = { type: 'function', function: { ...tool, parameters: JSON.parse(tool.parameters) } };

const cases = {
  async 'Chat is what REST says'() {
    const { answer, metadata } = await ask(inference, 'Chat', { ...chat, n: 2 });
    const other = await rest('/v1/chat/completions', { ...chatRest, n: 2 });
    assert.equal(answer.choices.length, 2);
    for (const [i, c] of answer.choices.entries()) {
      assert.equal(c.content ?? '', other.choices[i].message.content);
      assert.equal(c.finish, finishes[other.choices[i].finish_reason]);
      assert.equal(c.index ?? 0, i);
    }
    assert.equal(answer.usage.prompt_tokens, other.usage.prompt_tokens);
    assert.equal(answer.usage.generated_tokens, other.usage.completion_tokens);
    assert.equal(answer.id, metadata.get('x-request-id')[0]);
  },

  async 'ChatStream says the same piece by piece'() {
    const events = await gather(inference, 'ChatStream', { ...chat, return_progress: true });
    const other = await rest('/v1/chat/completions', chatRest);
    assert.equal(events[0].kind === 'started' || events.some((e) => e.kind === 'started'), true);
    const content = events.filter((e) => e.kind === 'content').map((e) => e.content).join('');
    assert.equal(content, other.choices[0].message.content);
    const last = events.at(-1);
    assert.equal(last.kind, 'done');
    assert.equal(last.done.finish, finishes[other.choices[0].finish_reason]);
    assert.equal(last.done.usage.generated_tokens, other.usage.completion_tokens);
  },

  async 'log-probabilities'() {
    const { answer } = await ask(inference, 'Chat', { ...chat, max_tokens: 5, logprobs: true, top_logprobs: 3 });
    const other = await rest('/v1/chat/completions', { ...chatRest, max_tokens: 5, logprobs: true, top_logprobs: 3 });
    const list = other.choices[0].logprobs.content;
    assert.equal(answer.choices[0].tokens.length, list.length);
    for (const [i, t] of answer.choices[0].tokens.entries()) {
      assert.deepEqual([...t.text], list[i].bytes);
      assert.ok(Math.abs(t.logprob - list[i].logprob) < 1e-5);
      assert.equal(t.top.length, 3);
    }
  },

  async 'tools, constraints and parts'() {
    const called = { ...chat, tools: [tool], tool_name: 'weather' };
    const { answer } = await ask(inference, 'Chat', called);
    const other = await rest('/v1/chat/completions', { ...chatRest, tools: [toolRest], tool_choice: { type: 'function', function: { name: 'weather' } } });
    const [mine, theirs] = [answer.choices[0].tool_calls[0], other.choices[0].message.tool_calls[0]];
    assert.equal(mine.name, 'weather');
    assert.equal(mine.arguments, theirs.function.arguments);
    const events = await gather(inference, 'ChatStream', called);
    const pieces = events.filter((e) => e.kind === 'tool_arguments').map((e) => e.tool_arguments.text ?? '').join('');
    assert.equal(pieces, theirs.function.arguments);
    assert.equal(events.find((e) => e.kind === 'tool_begin').tool_begin.name, 'weather');

    const schema = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}';
    const held = (await ask(inference, 'Chat', { ...chat, constraint: { json_schema: schema } })).answer.choices[0].content;
    assert.equal(held, (await rest('/v1/chat/completions', { ...chatRest, json_schema: JSON.parse(schema) })).choices[0].message.content);
    const choice = (await ask(inference, 'Chat', { ...chat, constraint: { choice: { texts: ['yes', 'no'] } } })).answer.choices[0].content;
    assert.ok(['yes', 'no'].includes(choice));
    const any = (await ask(inference, 'Chat', { ...chat, max_tokens: 200, constraint: { json_object: true } })).answer.choices[0];
    if (any.finish === 'FINISH_STOP') JSON.parse(any.content);

    const talk = [
      { role: 'user', parts: [{ text: 'Tell me about ' }, { text: 'the weather.' }] },
      { role: 'assistant', content: '', tool_calls: [{ id: 'a1', name: 'weather', arguments: '{"city":"Paris"}' }] },
      { role: 'tool', content: 'rain', tool_call_id: 'a1' },
    ];
    const talkRest = [
      { role: 'user', content: [{ type: 'text', text: 'Tell me about ' }, { type: 'text', text: 'the weather.' }] },
      { role: 'assistant', content: '', tool_calls: [{ id: 'a1', type: 'function', function: { name: 'weather', arguments: '{"city":"Paris"}' } }] },
      { role: 'tool', content: 'rain', tool_call_id: 'a1' },
    ];
    const rendered = (await ask(text, 'Render', { model: 'demo', messages: talk, tools: [tool] })).answer.prompt;
    assert.equal(rendered, (await rest('/apply-template', { model: 'demo', messages: talkRest, tools: [toolRest] })).prompt);
  },

  async 'Complete and CompleteStream'() {
    const asked = { model: 'demo', prompt: ['Once upon', 'The sea'], max_tokens: 12, sampling: { temperature: 0 }, n: 2 };
    const other = await rest('/v1/completions', { model: 'demo', prompt: asked.prompt, max_tokens: 12, temperature: 0, n: 2 });
    const { answer } = await ask(inference, 'Complete', asked);
    assert.deepEqual(answer.choices.map((c) => c.content), other.choices.map((c) => c.text));
    assert.equal(answer.usage.prompt_tokens, other.usage.prompt_tokens);
    const events = await gather(inference, 'CompleteStream', asked);
    for (const c of other.choices) {
      const mine = events.filter((e) => e.kind === 'content' && (e.choice ?? 0) === c.index).map((e) => e.content).join('');
      assert.equal(mine, c.text);
    }
    const ids = (await ask(text, 'Tokenize', { model: 'demo', text: 'Once upon' })).answer.tokens;
    const byTokens = await ask(inference, 'Complete', { ...asked, n: 1, prompt: [], prompt_tokens: [{ ids }] });
    const byTokensRest = await rest('/v1/completions', { model: 'demo', prompt: ids, max_tokens: 12, temperature: 0 });
    assert.equal(byTokens.answer.choices[0].content, byTokensRest.choices[0].text);
  },

  async 'Embed: a message per vector, the very numbers'() {
    const input = ['one', 'two words', 'drei'];
    const vectors = await gather(inference, 'Embed', { model: 'demo', input });
    const other = await rest('/v1/embeddings', { model: 'demo', input });
    assert.equal(vectors.length, 3);
    for (const [i, v] of vectors.entries()) {
      assert.equal(v.index ?? 0, i);
      assert.deepEqual(v.values, other.data[i].embedding.map(Math.fround));
    }
    assert.equal(vectors.at(-1).prompt_tokens, other.usage.prompt_tokens);
  },

  async 'Rerank'() {
    const body = { model: 'demo', query: 'cats', documents: ['a cat', 'a car'] };
    const r = await fetch(server.url + '/rerank', { method: 'POST', body: JSON.stringify(body) });
    const other = await r.json();
    if (!r.ok) { // the demo model does not rank: both say so
      await refused(ask(inference, 'Rerank', body), grpc.status.INVALID_ARGUMENT);
      return;
    }
    const { answer } = await ask(inference, 'Rerank', body);
    assert.deepEqual(answer.results.map((x) => [x.index ?? 0, x.relevance_score]), other.results.map((x) => [x.index, x.relevance_score]));
  },

  async 'Tokenize, Detokenize, Render, Count'() {
    const { tokens } = await rest('/tokenize', { model: 'demo', content: 'Grüße, 世界' });
    assert.deepEqual((await ask(text, 'Tokenize', { model: 'demo', text: 'Grüße, 世界' })).answer.tokens, tokens);
    assert.equal((await ask(text, 'Detokenize', { model: 'demo', tokens })).answer.text, 'Grüße, 世界');
    assert.deepEqual((await ask(text, 'Tokenize', { model: 'demo', text: '' })).answer.tokens, []);
    assert.equal((await ask(text, 'Detokenize', { model: 'demo' })).answer.text ?? '', '');
    const { prompt } = await rest('/apply-template', { model: 'demo', messages });
    assert.equal((await ask(text, 'Render', { model: 'demo', messages })).answer.prompt, prompt);
    const count = (await ask(text, 'Count', { model: 'demo', messages })).answer.tokens;
    assert.equal(count, (await ask(inference, 'Chat', chat)).answer.usage.prompt_tokens);
  },

  async 'Models'() {
    const other = (await rest('/v1/models')).data[0];
    const mine = (await ask(models, 'List', {})).answer.models;
    assert.equal(mine.length, 1);
    assert.equal(mine[0].id, 'demo');
    assert.equal(mine[0].n_ctx, other.meta.n_ctx);
    assert.equal(mine[0].size_bytes, other.meta.size);
    assert.deepEqual((await ask(models, 'Get', { model: 'demo' })).answer, mine[0]);
    assert.deepEqual((await ask(models, 'Unload', { model: 'demo' })).answer, { model: 'demo', status: 'unloaded' });
    assert.equal((await ask(models, 'Get', { model: 'demo' })).answer.status, 'unloaded');
    assert.deepEqual((await ask(models, 'Load', { model: 'demo', keep_alive: '10m' })).answer, { model: 'demo', status: 'loaded' });
    await refused(ask(models, 'Get', { model: 'nobody' }), grpc.status.NOT_FOUND);
    assert.deepEqual(await gather(models, 'Pull', { model: 'demo' }), [{ status: 'success' }]); // it is here
    await refused(ask(models, 'Copy', { source: 'demo', destination: 'other' }), grpc.status.UNIMPLEMENTED, /only the models/);
    await refused(ask(models, 'Delete', { model: 'demo' }), grpc.status.UNIMPLEMENTED);
  },

  async 'mistakes have the status, the sentence and the field'() {
    const e = await refused(ask(inference, 'Chat', { ...chat, sampling: { temperature: 9 } }), grpc.status.INVALID_ARGUMENT, /temperature: must lie/);
    const details = e.metadata.get('grpc-status-details-bin')[0].toString('latin1');
    assert.match(details, /google\.rpc\.ErrorInfo/);
    assert.match(details, /invalid_value/);
    assert.match(details, /temperature/);
    const body = await rest('/v1/chat/completions', { ...chatRest, temperature: 9 }, 400);
    assert.equal(e.details, body.error.message);
    await refused(ask(inference, 'Chat', { ...chat, model: 'nobody' }), grpc.status.NOT_FOUND, /'nobody' does not exist/);
    await refused(gather(inference, 'ChatStream', { ...chat, model: 'nobody' }), grpc.status.NOT_FOUND);
    await refused(ask(inference, 'Chat', { ...chat, constraint: { json_schema: '{' } }), grpc.status.INVALID_ARGUMENT, /json_schema: is not valid JSON/);
    await refused(ask(inference, 'Chat', { ...chat, messages: [{ role: 'user', content: 'a', parts: [{ text: 'b' }] }] }), grpc.status.INVALID_ARGUMENT, /parts/);
    await refused(ask(inference, 'Chat', { model: 'demo' }), grpc.status.INVALID_ARGUMENT, /messages/);
    await refused(ask(inference, 'Chat', { ...chat, messages: [{ role: 'user', content: 'x '.repeat(200000) }] }), grpc.status.INVALID_ARGUMENT);
    const wrong = new (grpc.makeGenericClientConstructor({
      Nothing: { path: '/hearth.v1.Inference/Nothing', requestSerialize: (b) => b, responseDeserialize: (b) => b },
    }))(address, plain);
    await refused(ask(wrong, 'Nothing', Buffer.alloc(0)), grpc.status.UNIMPLEMENTED, /no method/);
  },

  async 'compressed messages are refused, and the client is told what it may send'() {
    const zipped = new api.Inference(address, plain, { 'grpc.default_compression_algorithm': 2 });
    await refused(ask(zipped, 'Chat', chat), grpc.status.UNIMPLEMENTED, /compressed/);
    zipped.close();
  },

  async 'a call that is cancelled stops at once'() {
    const long = { ...chat, max_tokens: 100000, ignore_eos: true };
    const error = await refused(gather(inference, 'ChatStream', long, { each: (e, call) => e.kind === 'content' && call.cancel() }), grpc.status.CANCELLED);
    assert.ok(error);
    await idle();
  },

  async 'a deadline ends a call, whether it streams or not'() {
    const long = { ...chat, max_tokens: 100000, ignore_eos: true };
    const soon = () => ({ options: { deadline: Date.now() + 300 } });
    await refused(ask(inference, 'Chat', long, soon()), grpc.status.DEADLINE_EXCEEDED);
    await refused(gather(inference, 'ChatStream', long, soon()), grpc.status.DEADLINE_EXCEEDED);
    await idle();
    // By the server alone: this client has no clock of its own.
    const metadata = new grpc.Metadata();
    metadata.set('grpc-timeout', '200m');
    await refused(ask(inference, 'Chat', long, { metadata }), grpc.status.DEADLINE_EXCEEDED, /deadline/);
    metadata.set('grpc-timeout', 'soon');
    await refused(ask(inference, 'Chat', chat, { metadata }), grpc.status.INVALID_ARGUMENT, /grpc-timeout/);
  },

  async 'many streams share one connection'() {
    const want = await rest('/v1/chat/completions', chatRest);
    const all = await Promise.all(Array.from({ length: process.env.HEARTH_QUICK ? 12 : 50 }, () => gather(inference, 'ChatStream', chat)));
    for (const events of all) {
      assert.equal(events.filter((e) => e.kind === 'content').map((e) => e.content).join(''), want.choices[0].message.content);
    }
  },

  async 'health'() {
    const up = { status: 'SERVING' };
    for (const service of ['', 'hearth.v1.Inference', 'grpc.health.v1.Health', 'model/demo'])
      assert.deepEqual((await ask(health, 'Check', { service })).answer, up);
    await refused(ask(health, 'Check', { service: 'nobody' }), grpc.status.NOT_FOUND);
    const seen = await refused(gather(health, 'Watch', { service: 'nobody' }, { each: (m, call) => (assert.equal(m.status, 'SERVICE_UNKNOWN'), call.cancel()) }), grpc.status.CANCELLED);
    assert.ok(seen);
  },

  async 'reflection, in both versions'() {
    for (const version of ['v1', 'v1alpha']) {
      const client = new known.reflection[version].ServerReflection(address, plain);
      const answers = await new Promise((resolve, reject) => {
        const list = [];
        const call = client.ServerReflectionInfo();
        const questions = [{ list_services: '' }, { file_containing_symbol: 'hearth.v1.Text.Count' }, { file_by_filename: 'none.proto' }];
        call.on('data', (m) => { // the next question only behind the answer, as grpcurl does it
          list.push(m);
          questions.shift();
          if (questions.length) call.write(questions[0]);
          else call.end();
        });
        call.on('error', reject);
        call.on('end', () => resolve(list));
        call.write(questions[0]);
      });
      const names = answers[0].list_services_response.service.map((s) => s.name);
      assert.ok(names.includes('hearth.v1.Models') && names.includes('grpc.reflection.v1.ServerReflection'));
      assert.equal(answers[1].file_descriptor_response.file_descriptor_proto.length, 2); // with what it imports
      assert.equal(answers[2].error_response.error_code, grpc.status.NOT_FOUND);
      client.close();
    }
  },

  async 'the Unix socket'() {
    const client = new api.Inference(`unix:${server.socket}`, plain);
    const { answer } = await ask(client, 'Chat', chat);
    assert.equal(answer.choices[0].content, (await rest('/v1/chat/completions', chatRest)).choices[0].message.content);
    client.close();
  },

  async 'TLS, keys, and draining'() {
    const dir = mkdtempSync(join(tmpdir(), 'hearth-tls-'));
    const keys = join(dir, 'keys');
    writeFileSync(keys, 'name:secret-key-of-sixteen-or-more\n', { mode: 0o600 });
    const [cert, key] = [join(dir, 'cert.pem'), join(dir, 'key.pem')];
    execFileSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', key, '-out', cert, '-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'], { stdio: 'ignore' });
    const other = await startServer(hearth, '--model', demo, '--tls-cert', cert, '--tls-key', key, '--api-key-file', keys);
    const where = other.url.replace('https://127.0.0.1', 'localhost');
    const trust = grpc.credentials.createSsl(readFileSync(cert));
    const client = new api.Inference(where, trust);
    await refused(ask(client, 'Chat', chat), grpc.status.UNAUTHENTICATED, /API key/);
    const metadata = new grpc.Metadata();
    metadata.set('authorization', 'Bearer secret-key-of-sixteen-or-more');
    assert.equal((await ask(client, 'Chat', chat, { metadata })).answer.choices[0].content, (await rest('/v1/chat/completions', chatRest)).choices[0].message.content);
    // A server that stops tells so, and ends what it has begun.
    const watched = [];
    const watch = new known.health.v1.Health(where, trust);
    let over;
    await new Promise((told) => (over = gather(watch, 'Watch', { service: '' }, { each: (m) => told(watched.push(m.status)) })));
    let stopped;
    const events = await gather(client, 'ChatStream', { ...chat, max_tokens: 20, ignore_eos: true }, { metadata, each: (e) => e.kind === 'started' && (stopped = other.stop()) });
    assert.equal(events.at(-1).kind, 'done');
    await over;
    assert.deepEqual(watched, ['SERVING', 'NOT_SERVING']);
    await stopped;
    client.close();
    watch.close();
    rmSync(dir, { recursive: true, force: true });
  },

  async 'the REST paths over HTTP/2'() {
    const session = http2.connect(server.url);
    const fetch2 = (path, { body, ...headers } = {}) =>
      new Promise((resolve, reject) => {
        const stream = session.request({ ':path': path, ':method': body === undefined ? 'GET' : 'POST', ...headers });
        let [head, content] = [null, ''];
        stream.setEncoding('utf8');
        stream.on('response', (h) => (head = h));
        stream.on('data', (piece) => (content += piece));
        stream.on('end', () => resolve({ status: head[':status'], head, content }));
        stream.on('error', reject);
        stream.end(body);
      });
    const one = (path, body) => fetch(server.url + path, body && { method: 'POST', body });
    for (const path of ['/v1/models', '/nowhere', '/api/tags', '/']) {
      const [a, b] = [await fetch2(path), await one(path)];
      assert.equal(a.status, b.status);
      assert.equal(a.content, await b.text());
      assert.equal(a.head['content-type'], b.headers.get('content-type'));
    }
    const head = await fetch2('/v1/models', { ':method': 'HEAD' });
    assert.equal(head.content, '');
    assert.ok(Number(head.head['content-length']) > 0);
    const body = JSON.stringify({ ...chatRest, stream: true });
    const said = (text) => text.split('\n').filter((l) => l.startsWith('data: {')).map((l) => JSON.parse(l.slice(6)).choices[0]?.delta.content ?? '').join('');
    const [a, b] = [await fetch2('/v1/chat/completions', { body }), await one('/v1/chat/completions', body)];
    assert.equal(said(a.content), said(await b.text()));
    assert.ok(a.content.endsWith('data: [DONE]\n\n'));
    assert.equal((await fetch2('/v1/chat/completions', { body: '{' })).status, 400);
    assert.equal((await fetch2('/v1/chat/completions', { body, ':authority': 'attacker.example' })).status, 403);
    assert.equal((await fetch2('/v1/chat/completions', { body, origin: 'https://attacker.example' })).status, 403);
    // A client that goes takes its work along, be it a stream or the connection.
    const long = JSON.stringify({ ...chatRest, stream: true, max_tokens: 100000, ignore_eos: true });
    const left = session.request({ ':path': '/v1/chat/completions', ':method': 'POST' });
    left.end(long);
    await new Promise((done) => left.once('data', done));
    left.close(http2.constants.NGHTTP2_CANCEL);
    await idle();
    const last = session.request({ ':path': '/v1/chat/completions', ':method': 'POST' });
    last.on('error', () => {});
    last.end(long);
    await new Promise((done) => last.once('data', done));
    session.destroy();
    await idle();
  },

  async 'Pull, Copy and Delete, where there is a registry'() {
    const file = join(root, 'models/demo/draft.gguf');
    const dir = mkdtempSync(join(tmpdir(), 'hearth-hub-'));
    mkdirSync(join(dir, 'ollama/library/tiny'), { recursive: true });
    copyFileSync(file, join(dir, 'tiny.gguf'));
    writeFileSync(join(dir, 'ollama/library/tiny/latest.json'), JSON.stringify({ layers: [['model', 'tiny.gguf']] }));
    const hub = spawn('python3', [join(root, 'tests/registry/server.py'), dir], { stdio: ['pipe', 'pipe', 'inherit'] });
    const [line] = await once(createInterface({ input: hub.stdout }), 'line');
    process.env.HEARTH_OLLAMA_REGISTRY = `http://127.0.0.1:${line.split(' ')[1]}`;
    const other = await startServer(hearth);
    const where = other.url.replace('http://', '');
    const client = new api.Models(where, plain);
    try {
      const told = await gather(client, 'Pull', { model: 'tiny' });
      assert.equal(told[0].status, 'pulling manifest');
      assert.equal(told.at(-1).status, 'success');
      assert.ok(told.some((p) => p.digest && p.total === statSync(file).size && p.completed === p.total));
      await refused(gather(client, 'Pull', { model: 'nobody' }), grpc.status.NOT_FOUND, /nobody/);
      const names = async () => (await ask(client, 'List', {})).answer.models.map((m) => m.id);
      await ask(client, 'Copy', { source: 'tiny', destination: 'second' });
      assert.ok((await names()).some((n) => n.startsWith('second')));
      await ask(client, 'Delete', { model: 'second' });
      assert.ok(!(await names()).some((n) => n.startsWith('second')));
      await refused(ask(client, 'Delete', { model: 'second' }), grpc.status.NOT_FOUND);
      await refused(ask(client, 'Copy', { source: 'tiny', destination: '/' }), grpc.status.INVALID_ARGUMENT, /destination/);
    } finally {
      client.close();
      await other.stop();
      hub.stdin.end();
      rmSync(dir, { recursive: true, force: true });
    }
  },

  async 'the example of docs/grpc.md'() {
    const page = readFileSync(join(root, 'docs/grpc.md'), 'utf8').split('## Node')[1].split('\n');
    const first = page.findIndex((line) => line.startsWith('    '));
    const code = page.slice(first, page.findIndex((line, i) => i > first && /^\S/.test(line))).map((line) => line.slice(4)).join('\n');
    const file = join(root, 'tests/api/snippet-grpc.mjs');
    writeFileSync(file, code.replace('localhost:11434', address).replace("['proto']", JSON.stringify([join(root, 'proto')])));
    try {
      assert.equal(execFileSync(process.execPath, [file], { timeout: 60000 }).toString(), '12 plus 30 is 42.\n');
    } finally {
      rmSync(file);
    }
  },

  async 'metrics name it'() {
    const page = await (await fetch(server.url + '/metrics')).text();
    assert.match(page, /hearth_requests_total\{api="grpc",code="200"\} \d+/);
    assert.match(page, /hearth_requests_total\{api="grpc",code="504"\} \d+/);
  },
};

const ok = await runCases(cases);
for (const client of [inference, text, models, health]) client.close();
await server.stop();
process.exit(ok ? 0 : 1);
