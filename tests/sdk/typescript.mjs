// SPDX-License-Identifier: Apache-2.0
// The TypeScript client: strict types, the packed tarball installed as users do, and every method against the real server.
//
//   (cd sdk/typescript && npm ci) && node typescript.mjs HEARTH [PYTHON]
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { runCases, startServer } from '../api/server.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const sdk = join(root, 'sdk', 'typescript');
for (const name of ['HEARTH_HOST', 'HEARTH_API_KEY']) delete process.env[name]; // of whoever runs the tests
const [hearth, python = 'python3'] = process.argv.slice(2);
const tsc = join(sdk, 'node_modules', '.bin', 'tsc');
if (!existsSync(tsc)) {
  console.log('skipped: typescript is not installed (npm ci in sdk/typescript)');
  process.exit(0);
}

// npm pack of a copy, installed without a network; what runs below is what the tarball brought.
const dir = mkdtempSync(join(tmpdir(), 'hearth-sdk-'));
const app = join(dir, 'app');
function install() {
  const copy = join(dir, 'copy');
  cpSync(sdk, copy, { recursive: true, filter: (from) => !from.includes('node_modules') && !from.endsWith('dist') });
  symlinkSync(join(sdk, 'node_modules'), join(copy, 'node_modules'));
  const quiet = { cwd: copy, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] };
  execFileSync(tsc, ['--noEmit', '-p', 'tsconfig.browser.json'], quiet); // nothing of Node.js outside of node.ts
  const [packed] = JSON.parse(execFileSync('npm', ['pack', '--json', '--loglevel=error'], quiet).replace(/^[^[]*/, ''));
  const files = packed.files.map((f) => f.path).sort();
  assert.ok(files.includes('dist/index.js') && files.includes('dist/node.d.ts') && files.includes('README.md'), files.join());
  assert.ok(!files.some((f) => f.startsWith('src/')), files.join());
  mkdirSync(join(app, 'node_modules'), { recursive: true });
  writeFileSync(join(app, 'package.json'), '{"type": "module", "private": true}');
  execFileSync('npm', ['install', '--offline', '--no-audit', '--no-fund', '--loglevel=error', join(copy, packed.filename)], { ...quiet, cwd: app });
  const manifest = JSON.parse(readFileSync(join(app, 'node_modules/hearth-client/package.json'), 'utf8'));
  assert.equal(manifest.version, readFileSync(join(root, 'VERSION'), 'utf8').trim());
  assert.equal(manifest.dependencies, undefined);
  for (const name of readdirSync(join(sdk, 'src'))) {
    assert.ok(readFileSync(join(sdk, 'src', name), 'utf8').startsWith('// SPDX-License-Identifier: Apache-2.0\n'), name);
  }
}

const began = Date.now();
install();
console.log(`packed and installed in ${Date.now() - began} ms`);
const sdkAt = (file) => import(pathToFileURL(join(app, 'node_modules/hearth-client/dist', file)).href);
const plain = await sdkAt('index.js');
const node = await sdkAt('node.js');
const { Lines, ServerEvents } = await sdkAt('stream.js');

const SUM = 'What is 12 plus 30?';
const WEATHER = 'What is the weather in Paris?';
const LONG = ['One sunny morning,', { max_tokens: 3000, ignore_eos: true, temperature: 0 }];
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
async function eventually(condition, seconds = 10) {
  for (const end = Date.now() + seconds * 1000; !(await condition()); await sleep(10)) assert.ok(Date.now() < end, 'did not happen in time');
}
async function raises(Kind, run) {
  try {
    await run();
  } catch (error) {
    assert.equal(error.constructor, Kind, `${error.stack}`);
    return error;
  }
  throw new Error(`no ${Kind.name}`);
}

// A registry on loopback with the demo model (tests/registry/server.py).
const hubDir = join(dir, 'hub');
mkdirSync(join(hubDir, 'ollama/library/tiny'), { recursive: true });
cpSync(join(root, 'models/demo/demo.gguf'), join(hubDir, 'tiny.gguf'));
writeFileSync(join(hubDir, 'ollama/library/tiny/latest.json'), '{"layers": [["model", "tiny.gguf"]]}');
const hub = spawn(python, [join(root, 'tests/registry/server.py'), hubDir], { stdio: ['pipe', 'pipe', 'inherit'] });
const hubUrl = `http://127.0.0.1:${String((await once(hub.stdout, 'data'))[0]).split(' ')[1]}`;
process.env.HEARTH_OLLAMA_REGISTRY = hubUrl;
const open = await startServer(hearth);
const fault = (what) => fetch(`${hubUrl}/_control`, { method: 'POST', body: JSON.stringify(what) });
const raw = async (path, body) => (await fetch(open.url + path, body && { method: 'POST', body: JSON.stringify(body) })).json();

const getWeather = plain.tool({
  name: 'get_weather',
  description: 'Get the weather in a city',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  run: () => ({ weather: 'sunny', degrees: 21 }),
});

// Every case runs over fetch and TCP, and over node:http and the Unix socket.
function casesOf(name, { Client, NotFound, StreamFailed, BadRequest, Aborted, tool }, c) {
  const cases = {
    async chat() {
      const got = await c.chat(SUM, { temperature: 0 });
      const want = await raw('/v1/chat/completions', { model: 'demo', temperature: 0, messages: [{ role: 'user', content: SUM }] });
      assert.equal(got.text, want.choices[0].message.content);
      assert.deepEqual([got.finishReason, got.usage.promptTokens, got.usage.completionTokens], ['stop', 22, 12]);
      assert.match(got.requestId, /^req-/);
      const thought = await c.chat(SUM, { temperature: 0, enable_thinking: true });
      assert.ok(thought.reasoning && thought.usage.reasoningTokens > 0);
      const two = await c.chat('Tell me a story.', { n: 2, seed: 7, max_tokens: 3, logprobs: true, top_logprobs: 2 });
      assert.equal(two.choices.length, 2);
      assert.ok(two.choices[1].logprobs.every((t) => t.top.length === 2 && new TextDecoder().decode(t.bytes) === t.token));
      assert.deepEqual((await c.chat(SUM, { max_tokens: 1, extra: { store: true } })).ignored, ['store']);
      const schema = { type: 'object', properties: { age: { type: 'integer' } }, required: ['age'], additionalProperties: false };
      assert.equal(typeof (await c.chat('Anna is 31.', { response_schema: schema, temperature: 0 })).json().age, 'number');
    },
    async streams() {
      for (const more of [{}, { enable_thinking: true }, { logprobs: true }, { n: 2, seed: 3, temperature: 1 }, { tools: [getWeather] }]) {
        const options = { temperature: 0, ...more };
        const text = more.tools ? WEATHER : SUM;
        const whole = await c.chat(text, options);
        const stream = await c.chatStream(text, { ...options, return_progress: true });
        const kinds = [];
        for await (const event of stream) kinds.push(event.kind);
        const bare = (a) => a.choices.map((x) => ({ ...x, logprobs: x.logprobs.map((t) => t.token), toolCalls: x.toolCalls.map((t) => ({ ...t, id: '' })) }));
        assert.deepEqual(bare(stream.soFar), bare(whole));
        assert.equal(stream.soFar.usage.completionTokens, whole.usage.completionTokens);
        assert.ok(kinds[0] === 'started' && kinds.includes('progress') && kinds.includes('done'));
      }
      let text = '';
      for await (const piece of (await c.chatStream(SUM, { temperature: 0 })).texts()) text += piece;
      assert.equal(text, '12 plus 30 is 42.');
    },
    async completions() {
      const got = await c.complete('One sunny morning,', { max_tokens: 8, temperature: 0, logprobs: 1 });
      assert.equal(got.choices[0].logprobs.length, 8);
      const stream = await c.completeStream('One sunny morning,', { max_tokens: 8, temperature: 0 });
      assert.equal((await stream.answer()).text, got.text);
      assert.equal((await c.complete(['One day', 'Two days'], { n: 2, max_tokens: 2 })).choices.length, 4);
    },
    async 'vectors and texts'() {
      const want = await raw('/v1/embeddings', { model: 'demo', input: ['a cat', 'a dog'], encoding_format: 'base64' });
      const got = await c.embed(['a cat', 'a dog']);
      assert.deepEqual(got.vectors.map((v) => Buffer.from(v.buffer).toString('base64')), want.data.map((d) => d.embedding));
      assert.equal((await c.embed('a', { dimensions: 4 })).vectors[0].length, 4);
      const tokens = await c.tokenize('Hello world');
      assert.equal(await c.detokenize(tokens), 'Hello world');
      assert.deepEqual((await c.pieces('Hello world')).map((p) => p.id), tokens);
      assert.ok((await c.render(SUM, { tools: [getWeather] })).includes('get_weather'));
      assert.equal(await c.count(SUM, { tools: [getWeather] }), (await c.chat(SUM, { tools: [getWeather], max_tokens: 1 })).usage.promptTokens);
      assert.equal((await raises(BadRequest, () => c.rerank('a', ['b']))).code, 'unsupported');
    },
    async tools() {
      const seen = [];
      const run = await c.runTools(WEATHER, [getWeather], { temperature: 0, onCall: (call) => seen.push(call) });
      assert.equal(run.answer.text, 'It is sunny in Paris, with 21 degrees.');
      assert.deepEqual([run.rounds, run.exhausted, JSON.parse(seen[0].arguments)], [2, false, { city: 'Paris' }]);
      const broken = tool({ ...getWeather, run: () => { throw new RangeError('the sensor is broken'); } });
      const told = await c.runTools(WEATHER, [broken], { temperature: 0, maxRounds: 2 });
      assert.deepEqual(JSON.parse(told.messages[2].content), { error: 'RangeError: the sensor is broken' });
      const ran = [];
      const watched = tool({ ...getWeather, run: (args) => ran.push(args) });
      for (let n = 9; n < 20; n++) {
        const cut = await c.runTools(WEATHER, [watched], { temperature: 0, max_tokens: n });
        assert.equal(cut.answer.finishReason, 'length');
        assert.ok(cut.answer.toolCalls.every((call) => !call.complete) && cut.messages.at(-1).tool_calls === undefined);
      }
      assert.deepEqual(ran, []);
      assert.ok((await c.runTools(WEATHER, [getWeather], { temperature: 0, maxRounds: 1 })).exhausted);
    },
    async 'models and requests'() {
      assert.ok((await c.models.list()).some((m) => m.id === 'demo'));
      assert.ok((await c.models.show('demo')).capabilities.includes('tools'));
      await c.models.load('demo', { keepAlive: '10m' });
      await c.models.copy('demo', 'second');
      await c.models.delete('second');
      await raises(NotFound, () => c.models.delete('second'));
      assert.equal((await c.health()).status, 'ok');
      assert.ok((await c.stats()).models.length > 0);
      const stream = await c.completeStream(...LONG);
      await stream[Symbol.asyncIterator]().next();
      assert.equal((await c.requests.list()).find((r) => r.id === stream.requestId)?.path, '/v1/completions');
      await c.requests.cancel(stream.requestId);
      const why = await raises(StreamFailed, () => stream.answer());
      assert.ok(/cancelled/.test(why.message) && why.requestId === stream.requestId);
      await raises(NotFound, () => c.requests.cancel('req-0000000000000000'));
      await c.models.unload('demo');
      assert.equal((await c.models.list()).find((m) => m.id === 'demo').status, 'unloaded');
    },
    async pulls() {
      await fault({ delay: 0.02 });
      for await (const step of await c.models.pull('tiny')) if (step.total) break;
      await eventually(async () => !(await raw('/v1/pulls')).data.some((p) => p.state === 'running'));
      await fault({});
      const steps = [];
      for await (const step of await c.models.pull('tiny')) steps.push(step.status);
      assert.equal(steps.at(-1), 'success');
      await c.models.delete('tiny');
      await raises(BadRequest, () => c.models.pull('not a name'));
      await fault({ gone: true });
      await raises(StreamFailed, async () => (await c.models.pull('tiny')).wait());
      await fault({});
    },
    async 'abandoned streams end on the server'() {
      const before = (await raw('/v1/stats')).tokens_generated;
      const ways = [
        async (stream) => { for await (const _ of stream.texts()) break; },
        async (stream) => { for await (const event of stream) if (event.kind === 'content') stream.close(); },
        async (stream, control) => {
          await raises(Aborted, async () => { for await (const event of stream) if (event.kind === 'content') control.abort(); });
        },
      ];
      for (const leave of ways) {
        const control = new AbortController();
        const stream = await c.completeStream(LONG[0], { ...LONG[1], signal: control.signal });
        await leave(stream, control);
        await eventually(async () => !(await raw('/v1/requests')).data.some((r) => r.id === stream.requestId));
      }
      const control = new AbortController();
      setTimeout(() => control.abort(), 50);
      await raises(Aborted, () => c.complete(LONG[0], { ...LONG[1], signal: control.signal }));
      await raises(Aborted, () => c.complete(LONG[0], { ...LONG[1], signal: AbortSignal.abort() }));
      await eventually(async () => (await raw('/v1/stats')).running === 0);
      assert.ok((await raw('/v1/stats')).tokens_generated - before < 8000);
    },
    async 'a slow consumer loses nothing'() {
      const options = { ...LONG[1], max_tokens: 400 };
      const whole = await c.complete(LONG[0], options);
      let text = '', i = 0;
      for await (const piece of (await c.completeStream(LONG[0], options)).texts()) {
        text += piece;
        if (i++ === 3) await sleep(400);
      }
      assert.equal(text, whole.text);
    },
    async mistakes() {
      const why = await raises(BadRequest, () => c.chat('x', { temperature: 9 }));
      assert.deepEqual([why.status, why.code, why.param], [400, 'invalid_value', 'temperature']);
      for (const run of [() => c.chat('x', { temperatur: 1 }), () => c.count('x', { temperature: 1 }), () => c.chat('x', { temperature: Number.NaN })]) {
        await assert.rejects(async () => run(), TypeError);
      }
      for (const url of ['ftp://x', 'http://', 'http://u:p@x']) assert.throws(() => new Client({ url }), TypeError);
      assert.throws(() => new Client({ apiKey: 'a\r\nb' }), TypeError);
    },
  };
  return Object.fromEntries(Object.entries(cases).map(([what, run]) => [`${name}: ${what}`, run]));
}

// Answers every connection with the next of these texts; null: never.
async function scripted(answers, run) {
  const seen = [], sockets = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on('error', () => undefined);
    socket.once('data', (data) => {
      const answer = answers[seen.length];
      seen.push(String(data));
      if (answer !== null) socket.end(answer);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    await run(`http://127.0.0.1:${server.address().port}`, seen);
  } finally {
    for (const socket of sockets) socket.destroy();
    server.close();
  }
}
const head = (status, body, ...more) => [`HTTP/1.1 ${status}`, `Content-Length: ${body.length}`, 'Connection: close', ...more].join('\r\n') + `\r\n\r\n${body}`;

async function oddServers(kind) {
  const good = head('200 OK', '{"object":"list","data":[]}');
  const cases = [
    [kind.ProtocolError, [head('200 OK', '<html>')]], [kind.ProtocolError, [head('200 OK', 'null')]], [kind.ConnectionLost, ['']],
    [kind.ConnectionLost, ['SSH-2.0-OpenSSH_9.2\r\n\r\n']], [kind.ConnectionLost, [good.slice(0, -3)]], [kind.ServerError, [head('500 Oh', 'broken')]],
    [kind.Unavailable, [head('503 No', '', 'Retry-After: 3600')]], [kind.Unavailable, [head('503 No', '')]],
    [kind.Cancelled, [head('499 No', '{"error":{"message":"m","code":"cancelled"}}', 'Retry-After: 0')]],
    [kind.PermissionDenied, [head('403 No', '{"error":"no"}')]], [kind.RateLimited, [head('429 No', '', 'Retry-After: 7')]],
  ];
  for (const [Kind, answers] of cases) {
    await scripted(answers, async (url, seen) => {
      await raises(Kind, () => new kind.Client({ url }).requests.list());
      assert.equal(seen.length, 1, Kind.name);
    });
  }
  await scripted([head('503 No', '', 'Retry-After: 0'), good], async (url, seen) => {
    assert.deepEqual(await new kind.Client({ url, retries: 1 }).requests.list(), []);
    assert.equal(seen.length, 2);
  });
  await scripted([null], async (url) => void (await raises(kind.TimedOut, () => new kind.Client({ url, timeout: 200 }).requests.list())));
  const event = 'data: {"id":"a","model":"m","choices":[{"index":0,"text":"b","finish_reason":"stop"}]}\n\ndata: [DONE]\n\n';
  await scripted([head('200 OK', event, 'Content-Type: text/event-stream')], async (url) => {
    const stream = await new kind.Client({ url, timeout: 150 }).completeStream('x');
    await sleep(300); // of the caller's own
    assert.equal((await stream.answer()).text, 'b');
  });
  await scripted([good], async (url, seen) => {
    await new kind.Client({ url: `${url}/base/`, apiKey: 'k' }).requests.list();
    assert.match(seen[0], /^GET \/base\/v1\/requests HTTP\/1.1\r\n(?:.+\r\n)*authorization: Bearer k\r\n/i);
  });
  let gone;
  await scripted([], (url) => void (gone = url));
  const begin = Date.now();
  await raises(kind.ConnectError, () => new kind.Client({ url: gone, retries: 2 }).health());
  assert.ok(Date.now() - begin >= 290); // 0.1 s and 0.2 s between the attempts
}

const cases = {
  async 'events, cut at every byte'() {
    const bytes = new TextEncoder().encode('event: a\ndata: {}\n\n: beat\n\ndata: x\ndata: y\r\n\r\ndata:z €\n\n');
    for (let cut = 0; cut < bytes.length; cut++) {
      const e = new ServerEvents();
      const found = [...e.feed(bytes.subarray(0, cut)), ...e.feed(bytes.subarray(cut))];
      assert.deepEqual(found.map((f) => [f.name, f.data]), [['a', '{}'], ['', 'x\ny'], ['', 'z €']]);
    }
    assert.deepEqual(new Lines().feed(new TextEncoder().encode('a\r\nb\nc')), ['a', 'b']);
  },
  async addresses() {
    const want = {
      name: 'http://name:11434/', 'name:80': 'http://name/', 'http://name': 'http://name:11434/', 'http://name:80/x/': 'http://name/x/',
      'https://name': 'https://name/', '::1': 'http://[::1]:11434/', '[::1]:7': 'http://[::1]:7/',
    };
    for (const [url, base] of Object.entries(want)) {
      let asked = '';
      const fetch = async (given) => new Response((asked = given) && '{"data":[]}', { status: 200 });
      await new plain.Client({ url, fetch }).requests.list();
      assert.equal(asked, `${base}v1/requests`);
    }
  },
  ...casesOf('fetch', plain, new plain.Client({ url: open.url, model: 'demo' })),
  ...casesOf('node:http', node, new node.Client({ url: `unix:${open.socket}`, model: 'demo' })),
  'fetch: odd servers': () => oddServers(plain),
  'node:http: odd servers': () => oddServers(node),
  async 'keys, limits, fixed models'() {
    writeFileSync(join(dir, 'keys'), 'me:secret-key-1\nlimited:secret-key-2 rpm=1\n', { mode: 0o600 });
    const ranker = join(root, 'tests/golden/encoders/xlmr_rerank');
    const locked = await startServer(hearth, '--api-key-file', join(dir, 'keys'), '--model', `demo=${join(root, 'models/demo/demo.gguf')}`, '--model', `rank=${ranker}`);
    try {
      const c = new plain.Client({ url: locked.url, apiKey: 'secret-key-1', model: 'demo' });
      const why = await raises(plain.AuthenticationError, () => new plain.Client({ url: locked.url, apiKey: 'wrong' }).models.list());
      assert.deepEqual([why.status, why.code], [401, 'invalid_api_key']);
      await raises(plain.NotFound, () => c.chat('x', { model: 'nobody' }));
      await raises(plain.NotOffered, () => c.models.copy('demo', 'other'));
      const slow = new plain.Client({ url: locked.url, apiKey: 'secret-key-2', model: 'demo' });
      await slow.chat('x', { max_tokens: 1 });
      assert.ok((await raises(plain.RateLimited, () => slow.chat('x', { max_tokens: 1 }))).retryAfter > 0);
      const { pairs } = JSON.parse(readFileSync(join(root, 'tests/golden/encoder_texts.json'), 'utf8'));
      const { scores } = JSON.parse(readFileSync(join(ranker, 'golden.json'), 'utf8'));
      const same = pairs.map((p, i) => i).filter((i) => pairs[i][0] === pairs[0][0]);
      const got = await c.rerank(pairs[0][0], same.map((i) => pairs[i][1]), { model: 'rank' });
      assert.ok(got.results.length === same.length && got.results.every((r) => Math.abs(r.score - scores[same[r.index]]) < 2e-5));
    } finally {
      await locked.stop();
    }
  },
  async 'a server that dies'() {
    for (const kind of [plain, node]) {
      const server = await startServer(hearth);
      const c = new kind.Client({ url: server.url, model: 'demo', retries: 0 });
      const stream = await c.completeStream(...LONG);
      const iterator = stream[Symbol.asyncIterator]();
      while ((await iterator.next()).value.kind !== 'content');
      server.kill();
      const why = await raises(kind.ConnectionLost, () => stream.answer());
      assert.ok(why.requestId === stream.requestId && stream.soFar.text);
      await server.stop().catch(() => undefined);
      await raises(kind.ConnectError, () => c.health());
    }
  },
  async 'https with a certificate of our own'() {
    const [cert, key] = ['cert.pem', 'key.pem'].map((name) => join(root, 'tests/fixtures/tls', name));
    const server = await startServer(hearth, '--tls-cert', cert, '--tls-key', key);
    await raises(node.ConnectionLost, () => new node.Client({ url: server.url }).health());
    assert.equal((await new node.Client({ url: server.url, ca: readFileSync(cert, 'utf8') }).health()).status, 'ok');
    await server.stop();
  },
  async README() {
    const page = readFileSync(join(sdk, 'README.md'), 'utf8');
    const blocks = [...page.matchAll(/^```js\n([^]*?)\n```\n\nPrints `(.+?)`$/gm)];
    assert.equal(blocks.length, page.match(/^```js$/gm).length);
    assert.ok(blocks.length >= 5);
    symlinkSync(open.socket, join(dir, 'hearth.sock'));
    for (const [i, [, code, prints]] of blocks.entries()) {
      writeFileSync(join(app, `block-${i}.mjs`), code);
      const out = execFileSync(process.execPath, [join(app, `block-${i}.mjs`)], {
        env: { ...process.env, HEARTH_HOST: open.url, XDG_RUNTIME_DIR: dir, NO_PROXY: '*' }, encoding: 'utf8',
      });
      assert.ok(out.includes(prints), `no '${prints}' in: ${out}`);
    }
  },
  async 'lint and format, by the rules of the web UI'() {
    const biome = join(root, 'web/node_modules/.bin/biome');
    if (!existsSync(biome)) console.log('  skipped: biome is not installed (npm ci in web)');
    else execFileSync(biome, ['check', '--error-on-warnings', '--config-path=../../web', 'src'], { cwd: sdk, stdio: 'pipe' });
  },
  async 'types, as a user sees them'() {
    writeFileSync(join(app, 'use.ts'), `import { Client, tool, type Event } from 'hearth-client';
import { Client as NodeClient } from 'hearth-client/node';
const c = new Client({ model: 'demo' });
const text: string = (await c.chat('x', { temperature: 0 })).text;
for await (const e of await c.chatStream('x')) { const k: Event['kind'] = e.kind; if (e.kind === 'content') e.text.trim(); void k; }
const t = tool<{ city: string }>({ name: 'a', parameters: {}, run: ({ city }) => city.length });
await new NodeClient().runTools('x', [t], { maxRounds: 2 });
// @ts-expect-error a misspelt parameter
await c.chat('x', { temperatur: 1 });
void text;
`);
    const compilerOptions = {
      strict: true, noEmit: true, module: 'NodeNext', target: 'ES2022', lib: ['ES2022', 'DOM', 'DOM.AsyncIterable'], types: ['node'],
      typeRoots: [join(sdk, 'node_modules/@types')],
    };
    writeFileSync(join(app, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['use.ts'] }));
    try {
      execFileSync(tsc, ['-p', app], { encoding: 'utf8', stdio: 'pipe' });
    } catch (error) {
      throw new Error(error.stdout);
    }
  },
};
let good = false;
try {
  good = await runCases(cases);
} finally {
  await open.stop();
  hub.stdin.end();
  rmSync(dir, { recursive: true, force: true });
}
process.exit(good ? 0 : 1);
