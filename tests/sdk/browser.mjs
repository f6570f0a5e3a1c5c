// SPDX-License-Identifier: Apache-2.0
// The TypeScript client in a browser: a page of another origin asks the real server, streams, leaves a stream, and meets failures.
//
//   (cd sdk/typescript && npm ci) && (cd web/e2e && npm ci) && node browser.mjs HEARTH
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { launch, tools } from '../../web/e2e/lib.mjs';
import { runCases, startServer } from '../api/server.mjs';

const sdk = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'sdk', 'typescript');
const tsc = join(sdk, 'node_modules', '.bin', 'tsc');
if (!existsSync(tsc)) {
  console.log('skipped: typescript is not installed (npm ci in sdk/typescript)');
  process.exit(0);
}
const { chromium } = await tools();
const dir = mkdtempSync(join(tmpdir(), 'hearth-sdk-'));
execFileSync(tsc, ['-p', sdk, '--outDir', dir], { stdio: 'inherit' });

const pages = createServer((request, response) => {
  const script = request.url.endsWith('.js');
  response.setHeader('content-type', script ? 'text/javascript' : 'text/html');
  response.end(script ? readFileSync(join(dir, basename(request.url))) : '<!doctype html><title>page</title>');
});
pages.listen(0, '127.0.0.1');
await once(pages, 'listening');
const origin = `http://127.0.0.1:${pages.address().port}`;
const server = await startServer(process.argv[2], '--cors-origin', origin);
const browser = await launch(chromium);
const page = await browser.newPage();
await page.goto(origin);


const good = await runCases({
  async 'a chat, a stream, vectors, tools'() {
    const got = await page.evaluate(async (url) => {
      const { Client, tool } = await import('/index.js');
      const c = new Client({ url, model: 'demo' });
      let text = '';
      for await (const piece of (await c.chatStream('What is 12 plus 30?', { temperature: 0 })).texts()) text += piece;
      const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
      const run = () => ({ weather: 'sunny', degrees: 21 });
      const weather = tool({ name: 'get_weather', description: 'Get the weather in a city', parameters, run });
      const whole = await c.chat('What is 12 plus 30?', { temperature: 0 });
      const called = await c.runTools('What is the weather in Paris?', [weather], { temperature: 0 });
      return [whole.text, text, whole.requestId, (await c.embed('a cat')).vectors[0].length, called.answer.text];
    }, server.url);
    assert.match(got.splice(2, 1)[0], /^req-/);
    assert.deepEqual(got, ['12 plus 30 is 42.', '12 plus 30 is 42.', 512, 'It is sunny in Paris, with 21 degrees.']);
  },
  async 'a stream that is left ends on the server'() {
    const left = await page.evaluate(async (url) => {
      const { Client } = await import('/index.js');
      const c = new Client({ url, model: 'demo' });
      const stream = await c.completeStream('One sunny morning,', { max_tokens: 3000, ignore_eos: true });
      for await (const _ of stream.texts()) break;
      for (let i = 0; i < 500; i++) {
        if (!(await c.requests.list()).some((r) => r.id === stream.requestId)) return true;
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      return false;
    }, server.url);
    assert.ok(left);
  },
  async failures() {
    const gone = createServer().listen(0, '127.0.0.1');
    await once(gone, 'listening');
    const nobody = `http://127.0.0.1:${gone.address().port}`;
    await new Promise((resolve) => gone.close(resolve));
    const names = await page.evaluate(async ([open, gone]) => {
      const { Client } = await import('/index.js');
      const name = (url, model) => new Client({ url, model }).chat('x').then(() => 'answered', (error) => error.name);
      return [await name(open, 'nobody'), await name(gone, 'demo')];
    }, [server.url, nobody]);
    assert.deepEqual(names, ['NotFound', 'ConnectionLost']); // a browser does not say why nothing came
  },
});
await browser.close();
pages.close();
await server.stop();
rmSync(dir, { recursive: true });
process.exit(good ? 0 : 1);
