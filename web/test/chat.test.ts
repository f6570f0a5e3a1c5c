import assert from "node:assert/strict";
import { test } from "node:test";
import { below, childrenOf, familiesOf, leafOf, pathTo, titleOf } from "../src/chat/tree";
import type { Message } from "../src/chat/types";
import { calculate } from "../src/lib/calc";
import { age, bytes, seconds } from "../src/lib/format";
import { quantileBetween } from "../src/lib/quantile";
import { isSound, soundPart } from "../src/lib/sounds";
import { SseParser } from "../src/lib/sse";

const message = (id: string, parent: string | null, created: number): Message => ({
  id,
  parent,
  created,
  chat: "c",
  role: "user",
  content: id,
  state: "done",
});
const tree = new Map(
  [message("a", null, 1), message("b", "a", 2), message("c", "b", 3), message("b2", "a", 4), message("d", "b2", 5)].map(
    (m) => [m.id, m],
  ),
);

test("a sound is sent by its bytes and its kind", () => {
  const wav = { type: "input_audio", input_audio: { data: "UklGRg==", format: "wav" } };
  assert.deepEqual(soundPart("audio/x-wav", "data:audio/x-wav;base64,UklGRg=="), wav);
  const mp3 = { type: "input_audio", input_audio: { data: "SUQz", format: "mp3" } };
  assert.deepEqual(soundPart("audio/mpeg", "data:audio/mpeg;base64,SUQz"), mp3);
  assert.ok(isSound("audio/wav") && !isSound("audio/ogg") && !isSound("image/png") && !isSound(""));
});

test("a path goes from the first message to the head", () => {
  assert.deepEqual(
    pathTo(tree, "c").map((m) => m.id),
    ["a", "b", "c"],
  );
  assert.deepEqual(pathTo(tree, null), []);
  assert.deepEqual(pathTo(new Map([["x", message("x", "x", 1)]]), "x").length, 1);
});

test("quantiles between two moments", () => {
  const before: [number | null, number][] = [
    [0.1, 5],
    [1, 0],
    [null, 0],
  ];
  assert.equal(quantileBetween(before, before, 0.5), undefined);
  assert.equal(
    quantileBetween(
      before,
      [
        [0.1, 5],
        [1, 3],
        [null, 1],
      ],
      0.5,
    ),
    1,
  );
  assert.equal(
    quantileBetween(
      before,
      [
        [0.1, 9],
        [1, 1],
        [null, 0],
      ],
      0.5,
    ),
    0.1,
  );
  assert.equal(
    quantileBetween(
      [],
      [
        [0.1, 0],
        [1, 0],
        [null, 2],
      ],
      0.99,
    ),
    1,
  );
});

test("siblings, leaves and what follows", () => {
  assert.deepEqual(
    childrenOf(tree, "a").map((m) => m.id),
    ["b", "b2"],
  );
  for (const parent of [null, "a", "b", "b2"]) assert.deepEqual(familiesOf(tree).get(parent), childrenOf(tree, parent));
  assert.equal(leafOf(tree, "a"), "d");
  assert.equal(leafOf(tree, "b"), "c");
  assert.deepEqual(
    below(tree, "b2").map((m) => m.id),
    ["b2", "d"],
  );
});

test("events survive every cut of their bytes", () => {
  const text =
    'data: {"a":"ä€😀"}\n\nevent: prefill_progress\ndata: {"total":1}\n\n: beat\n\ndata: one\ndata: two\n\ndata: [DONE]\n\n';
  const all = new TextEncoder().encode(text);
  const whole = new SseParser().push(all);
  assert.deepEqual(
    whole.map((e) => e.event),
    ["message", "prefill_progress", "message", "message"],
  );
  assert.equal(whole[2]?.data, "one\ntwo");
  for (let cut = 1; cut < all.length; cut++) {
    const p = new SseParser();
    assert.deepEqual([...p.push(all.slice(0, cut)), ...p.push(all.slice(cut))], whole, `cut at ${cut}`);
  }
});

test("the calculator follows the rules of arithmetic", () => {
  const cases: [string, number][] = [
    ["2+3*4", 14],
    ["(2+3)*4", 20],
    ["2^3^2", 512],
    ["-2^2", -4],
    ["7%4", 3],
    ["sqrt(16)+abs(-3)", 7],
    ["1e3/4", 250],
    ["2**-1", 0.5],
  ];
  for (const [text, value] of cases) assert.equal(calculate(text), value, text);
  for (const bad of ["", "2+", "alert(1)", "1 2", "(1", "constructor", "x", "(".repeat(1000)])
    assert.throws(() => calculate(bad), bad);
});

test("figures as people read them", () => {
  assert.equal(bytes(21332480), "21.3 MB");
  assert.equal(seconds(0.034), "0.03 s");
  assert.equal(seconds(299), "4:59");
  assert.equal(age(Date.UTC(2026, 0, 10, 12), Date.UTC(2026, 0, 10, 13)), "Today");
  assert.equal(titleOf("  What   is\nthis? "), "What is this?");
});
