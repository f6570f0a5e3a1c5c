// Builds web/dist: hashed files, gzip where that helps, and assets.txt, which web/build.cmake reads.
//   node build.mjs [--out DIR] [--replace FROM=TO]   (the second is for tests that put another module in place of one)
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const root = dirname(fileURLToPath(import.meta.url));
const option = (name) => {
  const at = process.argv.indexOf(name);
  return at > 0 ? process.argv[at + 1] : undefined;
};
const out = resolve(option("--out") ?? join(root, "dist"));
const [from, to] = option("--replace")?.split("=") ?? [];
const src = (name) => join(root, "src", name);
const sha = (data) => createHash("sha256").update(data).digest("hex");

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });

const replace = {
  name: "replace",
  setup(b) {
    if (!from) return;
    b.onResolve({ filter: /^\./ }, (args) => {
      const path = resolve(args.resolveDir, args.path);
      return path === src(from) ? { path: resolve(to) } : undefined;
    });
  },
};

const common = {
  bundle: true,
  format: "esm",
  minify: true,
  metafile: true,
  target: ["chrome111", "firefox115", "safari16.4"],
  outdir: out,
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".woff2": "file", ".woff": "empty", ".ttf": "empty" },
  legalComments: "none",
  logLevel: "warning",
  plugins: [replace],
};

const entryOf = (result, name) =>
  basename(Object.entries(result.metafile.outputs).find(([, o]) => o.entryPoint?.endsWith(`src/${name}`))[0]);

const copy = (name) => {
  const data = readFileSync(src(name));
  const dot = name.lastIndexOf(".");
  const hashed = `${name.slice(0, dot)}-${sha(data).slice(0, 8)}${name.slice(dot)}`;
  writeFileSync(join(out, hashed), data);
  return hashed;
};

const single = async (name) => entryOf(await build({ ...common, entryPoints: [src(name)] }), name);
const worker = await single("worker/highlight.ts");
const math = await single("style/math.css");
const css = await single("style/app.css");
const app = await build({
  ...common,
  splitting: true,
  entryPoints: [src("main.tsx")],
  define: { WORKER_FILE: JSON.stringify(worker), MATH_CSS: JSON.stringify(math) },
});
const js = entryOf(app, "main.tsx");
const icon = copy("icon.svg");
const manifest = {
  name: "Hearth",
  short_name: "Hearth",
  start_url: "../",
  display: "standalone",
  background_color: "#171513",
  theme_color: "#171513",
  icons: [{ src: icon, sizes: "any", type: "image/svg+xml" }],
};
const manifestName = `manifest-${sha(JSON.stringify(manifest)).slice(0, 8)}.webmanifest`;
writeFileSync(join(out, manifestName), JSON.stringify(manifest));
const page = readFileSync(src("index.html"), "utf8")
  .replace("{css}", css)
  .replace("{js}", js)
  .replace("{icon}", icon)
  .replace("{manifest}", manifestName);
writeFileSync(join(out, "index.html"), page);

const types = {
  html: "text/html",
  css: "text/css",
  js: "text/javascript",
  svg: "image/svg+xml",
  woff2: "font/woff2",
  webmanifest: "application/manifest+json",
};
const lines = [];
for (const name of readdirSync(out).sort()) {
  let data = readFileSync(join(out, name));
  let packed = 0;
  if (name !== "index.html" && data.length > 1000) {
    const small = gzipSync(data, { level: 9 });
    if (small.length < data.length * 0.9) {
      data = small;
      packed = 1;
      writeFileSync(join(out, name), data);
    }
  }
  lines.push(`${name} ${types[name.slice(name.lastIndexOf(".") + 1)]} ${sha(data)} ${packed}`);
}
writeFileSync(join(out, "assets.txt"), `${lines.join("\n")}\n`);

// What a first visit loads: the page, its style and scripts that no import() stands before.
const needed = new Set();
const walk = (name) => {
  if (needed.has(name)) return;
  needed.add(name);
  const key = Object.keys(app.metafile.outputs).find((o) => basename(o) === name);
  for (const i of app.metafile.outputs[key]?.imports ?? []) if (i.kind === "import-statement") walk(basename(i.path));
};
walk(js);
const initial = [...needed, css, "index.html"].reduce((sum, name) => sum + readFileSync(join(out, name)).length, 0);
writeFileSync(join(out, "initial.json"), JSON.stringify({ bytes: initial, files: [...needed, css, "index.html"] }));
console.log(`web: ${lines.length} files; a first visit loads ${(initial / 1000).toFixed(0)} kB`);
