// SPDX-License-Identifier: Apache-2.0
// What the client tests share: a real `hearth serve` with the demo model, and checks that count.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

export async function startServer(hearth, ...options) {
  const dir = mkdtempSync(join(tmpdir(), 'hearth-'));
  const env = { ...process.env, XDG_STATE_HOME: dir, XDG_RUNTIME_DIR: dir, XDG_DATA_HOME: dir };
  delete env.HEARTH_API_KEYS;
  const socket = join(dir, 's');
  const child = spawn(hearth, ['serve', '--port', '0', '--socket', socket, '--ready-json', '--log-level', 'warn', ...options], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [line] = await once(createInterface({ input: child.stdout }), 'line');
  const stop = async () => {
    child.kill('SIGTERM');
    // One that was killed has a signal instead of a code; the event of its end may be over.
    const [code] = child.exitCode === null && child.signalCode === null ? await once(child, 'exit') : [child.exitCode];
    rmSync(dir, { recursive: true, force: true });
    if (code !== 0) throw new Error(`the server ended with ${code}`);
  };
  const token = readFileSync(join(dir, 'hearth/token'), 'utf8').trim(); // the owner's key
  return { url: JSON.parse(line).url, socket, token, stop, kill: () => child.kill('SIGKILL') };
}

// Runs the cases one after another; prints one line each, ends the process with the verdict.
export async function runCases(cases) {
  let failed = 0;
  for (const [name, run] of Object.entries(cases)) {
    try {
      await run();
      console.log(`check ok: ${name}`);
    } catch (error) {
      failed++;
      console.log(`check FAILED: ${name}: ${error?.stack ?? error}`);
    }
  }
  return failed === 0;
}
