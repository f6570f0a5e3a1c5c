// Unit tests of the pages' logic: bundled by esbuild (the sources are TypeScript), run by node's own runner.
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const esbuild = await import("esbuild").catch(() => null);
if (!esbuild) {
  console.log("skipped: npm ci was not run in web");
  process.exit(0);
}
const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "../node_modules/.hearth-test");
mkdirSync(out, { recursive: true });
const entryPoints = readdirSync(here)
  .filter((f) => f.endsWith(".test.ts"))
  .map((f) => join(here, f));
await esbuild.build({
  entryPoints,
  bundle: true,
  format: "esm",
  platform: "node",
  outdir: out,
  outExtension: { ".js": ".mjs" },
  logLevel: "warning",
});
const files = entryPoints.map((e) => join(out, `${e.split("/").pop().slice(0, -3)}.mjs`));
process.exit(
  spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit", cwd: join(here, "..") }).status ?? 1,
);
