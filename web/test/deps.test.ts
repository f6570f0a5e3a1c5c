/** docs/dependencies.md names every package that is built in or builds, with the version of the lock file. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

interface Locked {
  version: string;
  resolved?: string;
  integrity?: string;
  optional?: boolean;
}

const read = (path: string) => readFileSync(path, "utf8");
const locks = ["package-lock.json", "e2e/package-lock.json", "../sdk/typescript/package-lock.json"];
const lockOf = (path: string) =>
  Object.entries(JSON.parse(read(path)).packages as Record<string, Locked>)
    .filter(([at]) => at !== "")
    .map(([at, p]) => ({ ...p, name: at.replace(/^.*node_modules\//, "") }));

test("every package of the lock files is in docs/dependencies.md with its version", () => {
  const doc = read("../docs/dependencies.md");
  for (const file of locks) {
    for (const p of lockOf(file)) {
      if (!p.optional) assert.ok(doc.includes(`${p.name} ${p.version}`), `${p.name} ${p.version} of ${file}`);
    }
  }
});

test("every package comes from the registry and is known by its hash", () => {
  for (const file of locks) {
    for (const p of lockOf(file)) {
      assert.match(p.resolved ?? "https://registry.npmjs.org/", /^https:\/\/registry\.npmjs\.org\//, p.name);
      assert.match(p.integrity ?? "", /^sha512-/, p.name);
    }
  }
});
