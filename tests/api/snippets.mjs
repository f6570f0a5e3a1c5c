// SPDX-License-Identifier: Apache-2.0
// Every code block of docs/clients.md, run against the real server with the demo model.
//
//   npm ci && node snippets.mjs HEARTH
//
// localhost:11434 becomes the address of the test's server; nothing else of a block is changed. The line "Prints `text`"
// behind a block says what its output must contain. A program that is not installed is replaced by the nearest thing
// that reads the same variables, and that is said.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runCases, startServer } from './server.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const hearth = process.argv[2];
const packages = ['openai', 'ollama', '@anthropic-ai/sdk'];
const absent = packages.filter((name) => !existsSync(join(here, 'node_modules', name)));
if (absent.length || spawnSync('curl', ['--version']).status !== 0) {
  console.log(`skipped: ${absent.length ? `${absent} (npm ci in tests/api)` : 'curl'} not installed`);
  process.exit(0);
}

function blocksOf(text) {
  const pattern = /^(?:## (.+)|```(\w+)\n([\s\S]*?)\n```(?:\s*\nPrints `(.+?)`.*)?)$/gm;
  const blocks = [];
  let heading = '';
  for (const [, title, language, code, prints] of text.matchAll(pattern)) {
    if (title) heading = title;
    else blocks.push({ heading, language, code, prints });
  }
  assert.equal(blocks.length * 2, text.match(/^```/gm).length, 'a block was not read');
  return blocks;
}

// The output of a program; it must end well.
async function output(command, args, env) {
  const child = spawn(command, args, { env: { ...process.env, ...env }, cwd: here, stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '', errors = '';
  child.stdout.on('data', (data) => (out += data));
  child.stderr.on('data', (data) => (errors += data));
  const code = await new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  assert.equal(code, 0, `${command} ended with ${code}: ${errors}${out}`);
  return out;
}

const installed = (program) => spawnSync('sh', ['-c', `command -v ${program}`]).status === 0;

// What stands in for a program that is not here, and what tries a block of variables only.
const standIns = {
  ollama: (exports) => ['sh', ['-ec', `${exports}\ncurl -fs "$OLLAMA_HOST/api/tags"`]],
  '': (exports) => ['sh', ['-ec', `${exports}\nexec "${process.execPath}" --input-type=module -e '
    import Anthropic from "@anthropic-ai/sdk";
    const m = await new Anthropic().messages.create({ model: process.env.ANTHROPIC_MODEL, max_tokens: 50, temperature: 0,
      messages: [{ role: "user", content: "What is 12 plus 30?" }] });
    console.log(m.content[0].text);'`]],
};

async function runBlock(block, code, env) {
  if (block.language === 'js') {
    const file = join(here, `snippet-${process.pid}.mjs`); // beside node_modules
    writeFileSync(file, code);
    try {
      return await output(process.execPath, [file], env);
    } finally {
      unlinkSync(file);
    }
  }
  if (block.language === 'python') {
    if (spawnSync('python3', ['-c', 'import openai']).status === 0) return output('python3', ['-c', code], env);
    await output('python3', ['-c', 'import ast, sys; ast.parse(sys.argv[1])', code]);
    console.log("  skipped: Python's openai is not installed; the block was only parsed");
    return null;
  }
  if (block.language === 'ini') {
    const urls = [...code.matchAll(/^\w+=(http\S+)$/gm)].map((m) => m[1]);
    assert.ok(urls.length > 0);
    for (const url of urls) assert.match(await output('curl', ['-fs', url + (url.endsWith('/v1') ? '/models' : '/api/tags')]), /demo/);
    return null;
  }
  assert.equal(block.language, 'sh', 'a language that this test cannot run');
  const program = (code.split('\n').find((l) => !l.startsWith('export ')) ?? '').split(' ')[0];
  if (program && installed(program)) return output('sh', ['-ec', code], env);
  assert.ok(standIns[program], `${program} is not installed`);
  if (program) console.log(`  skipped: ${program} is not installed; its variables were tried with another client`);
  const [command, args] = standIns[program](code.split('\n').filter((l) => l.startsWith('export ')).join('\n'));
  return output(command, args, env);
}

const key = 'secret-key-of-the-test';
const dir = mkdtempSync(join(tmpdir(), 'hearth-'));
writeFileSync(join(dir, 'keys'), `test:${key}\n`, { mode: 0o600 });
const open = await startServer(hearth);
const locked = await startServer(hearth, '--api-key-file', join(dir, 'keys'));
symlinkSync(open.socket, join(dir, 'hearth.sock'));
const cases = {};
blocksOf(readFileSync(join(here, '..', '..', 'docs', 'clients.md'), 'utf8')).forEach((block, i) => {
  cases[`${block.heading}, block ${i + 1} (${block.language})`] = async () => {
    const server = block.heading === 'Keys' ? locked : open;
    const code = block.code.replaceAll('http://localhost:11434', server.url);
    const env = { XDG_RUNTIME_DIR: dir, HEARTH_KEY: key, NO_PROXY: '*', no_proxy: '*' };
    const out = await runBlock(block, code, env);
    if (block.language !== 'ini') assert.ok(block.prints, 'the text does not say what the block prints');
    if (out !== null) assert.ok(out.includes(block.prints), `no '${block.prints}' in: ${out}`);
  };
});
assert.ok(Object.keys(cases).length > 10);
cases['the request of README.md'] = async () => {
  const line = readFileSync(join(here, '..', '..', 'README.md'), 'utf8').match(/^    (curl .*)$/m)[1];
  const code = line.replace('http://localhost:11434', open.url).replace('"mine"', '"demo"');
  assert.match(JSON.parse(await output('sh', ['-ec', code])).choices[0].message.content, /\w/);
};
const good = await runCases(cases);
await open.stop();
await locked.stop();
rmSync(dir, { recursive: true });
process.exit(good ? 0 : 1);
