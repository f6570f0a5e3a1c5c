# SPDX-License-Identifier: Apache-2.0
"""The compressed page types of src/kernels/kvpage.h once more, in double precision and from their definitions: the
codebooks by Lloyd and Max's iteration, the signs by Philox4x32-10, the rotation by its matrix. Standard library only.

  python3 reference.py > ../../tests/golden/kv_pages.txt     writes the fixture that tests/unit/kernels/test_kvpage.c reads
  python3 reference.py --errors                              relative squared error of every type

A line of the fixture: type, dimensions, kind of vector, seed, and the bytes of its row of V (values, then scales). Where
double and single precision might decide differently, another seed is taken.
"""
import math
import struct
import sys

GROUP, BLOCK_MAX = 32, 128


# -- signs, rotation, codebooks ----------------------------------------------------------------------------------------

def philox(counter, key):
    """Philox4x32-10 as published (Salmon et al. 2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


SIGNS = [-1.0 if w >> i & 1 else 1.0 for w in philox([0] * 4, [0] * 2) for i in range(32)]


def block_of(dim):
    b = 1
    while b < BLOCK_MAX and dim % (2 * b) == 0:
        b *= 2
    return b


def rotate(x, block):
    out = []
    for at in range(0, len(x), block):
        y = [SIGNS[i] * x[at + i] for i in range(block)]
        out += [sum(-v if bin(i & j).count("1") % 2 else v for j, v in enumerate(y)) / math.sqrt(block) for i in range(block)]
    return out


def lloyd_max(bits):
    """The best 2^bits levels for the normal distribution, and their mean squared error."""
    density = lambda t: math.exp(-t * t / 2) / math.sqrt(2 * math.pi) if abs(t) < 40 else 0.0
    below = lambda t: 0.5 * (1 + math.erf(t / math.sqrt(2)))
    n = 1 << bits
    levels = [-2.5 + 5.0 * (i + 0.5) / n for i in range(n)]
    for _ in range(20000):
        edges = [-math.inf] + [(a + b) / 2 for a, b in zip(levels, levels[1:])] + [math.inf]
        mass = [below(b) - below(a) for a, b in zip(edges, edges[1:])]
        new = [(density(a) - density(b)) / m for a, b, m in zip(edges, edges[1:], mass)]
        moved = max(abs(a - b) for a, b in zip(new, levels))
        levels = new
        if moved < 1e-13:
            break
    return levels, 1.0 - sum(m * v * v for m, v in zip(mass, levels))


def codebook(bits, codes, top):
    """codes and the largest level, as kernels/kvpage.c and kv_pack.h have them, after comparing them with the iteration."""
    levels, _ = lloyd_max(bits)
    assert [round(127 * v / levels[-1]) for v in levels] == codes and abs(levels[-1] - top) < 1e-4, levels
    return codes, top


CODES = {"tq4": codebook(4, [-127, -96, -75, -58, -44, -31, -18, -6, 6, 18, 31, 44, 58, 75, 96, 127], 2.7326),
         "tq3": codebook(3, [-127, -79, -45, -14, 14, 45, 79, 127], 2.1520),
         "tq2": codebook(2, [-127, -38, 38, 127], 1.5104)}


# -- encoding: numbers, scales, and how sure they are --------------------------------------------------------------------

class Unsure(Exception):
    """A decision that single precision may take differently."""


def sure(distance, least):
    if distance < least:
        raise Unsure


def half(x):
    """x as f16, away from the middle between two of them."""
    h, = struct.unpack("<e", struct.pack("<e", x))
    if h:
        ulp = 2.0 ** (max(math.floor(math.log2(abs(h))), -14) - 10)
        sure(0.5 - abs(x - h) / ulp, 0.01)
    return h


def nearest(v, code):
    i = min(range(len(code)), key=lambda k: (abs(v - code[k]), k))
    for other in (i - 1, i + 1):
        if 0 <= other < len(code):
            sure(abs(abs(v - code[other]) - abs(v - code[i])), 1e-3)
    return i


def encode(kind, x):
    """(numbers as stored, scales, values that they mean), in rotated space where the type rotates."""
    numbers, scales, values = [], [], []
    if kind == "fp8":
        steps = [m * 2.0 ** -9 for m in range(8)] + [(8 + m) * 2.0 ** (e - 10) for e in range(1, 16) for m in range(8)]
        for v in x:
            n = min(range(127), key=lambda k: (abs(abs(v) - steps[k]), k & 1))  # exact: ties go to the even one
            numbers.append(n | (0x80 if math.copysign(1, v) < 0 else 0))
            values.append(math.copysign(steps[n], v))
        return numbers, scales, values
    block = block_of(len(x))
    y = rotate(x, block)
    if kind in CODES:
        code, top = CODES[kind]
        for at in range(0, len(y), block):
            part = y[at:at + block]
            norm = math.sqrt(sum(v * v for v in part))
            picks = [nearest(v * math.sqrt(block) / norm * 127 / top, code) for v in part]
            scale = half(norm / math.sqrt(sum(code[n] ** 2 for n in picks)))
            numbers += picks
            scales.append(scale)
            values += [scale * code[n] for n in picks]
        return numbers, scales, values
    lowest, highest = {"q8_0": (-127, 127), "q5_0": (-16, 15), "q4_0": (-8, 7)}[kind]
    for at in range(0, len(y), GROUP):
        part = y[at:at + GROUP]
        top = max(part, key=abs)
        if kind != "q8_0":
            rest = sorted(map(abs, part))[-2]
            sure(abs(top) - rest, 1e-4)
        scale = half(abs(top) / 127 if kind == "q8_0" else top / lowest)
        for v in part:
            sure(abs(v / scale - math.floor(v / scale) - 0.5), 1e-3)
            n = min(highest, max(lowest, round(v / scale)))
            numbers.append(n & 0xFF if kind == "q8_0" else n - lowest)
            values.append(scale * n)
        scales.append(scale)
    return numbers, scales, values


def row_bytes(kind, numbers, scales):
    """A row of V."""
    out = bytearray()
    for at in range(0, len(numbers), GROUP):
        n = numbers[at:at + GROUP]
        if kind in ("q8_0", "fp8"):
            out += bytes(n)
        elif kind == "tq3":
            w = [sum(n[i + 8 * k] << 3 * k for k in range(4)) for i in range(8)]
            out += bytes(v & 0xFF for v in w) + bytes(w[i] >> 8 | w[i + 4] >> 8 << 4 for i in range(4))
        elif kind == "tq2":
            out += bytes(sum(n[i + 8 * k] << 2 * k for k in range(4)) for i in range(8))
        else:
            out += bytes((n[i] & 15) | (n[i + 16] & 15) << 4 for i in range(16))
        if kind == "q5_0":
            out += sum((v >> 4 & 1) << i for i, v in enumerate(n)).to_bytes(4, "little")
    return bytes(out) + b"".join(struct.pack("<e", s) for s in scales)


# -- vectors: whole numbers over 4096, so that the test makes the same ones ----------------------------------------------

class Random:
    def __init__(self, seed):
        self.state = seed * 2654435761 % (1 << 32) | 1

    def next(self):
        s = self.state
        s ^= s << 13 & 0xFFFFFFFF
        s ^= s >> 17
        s ^= s << 5 & 0xFFFFFFFF
        self.state = s
        return s


def vector(kind, dim, seed):
    """normal: sums of 12; heavy: each times a power of two that is large now and then; outlier: two dimensions x 30."""
    r = Random(seed)
    x = [sum(r.next() >> 20 for _ in range(12)) - 12 * 2048 for _ in range(dim)]
    if kind == "heavy":
        for i in range(dim):
            u = r.next()
            x[i] *= 1 << min(5, (u & -u).bit_length() - 1)
    if kind == "outlier":
        for _ in range(2):
            x[r.next() % dim] *= 30
    return [v / 4096 for v in x]


TYPES = ["q8_0", "q5_0", "q4_0", "tq4", "tq3", "tq2", "fp8"]
KINDS = ["normal", "heavy", "outlier"]


def main():
    if sys.argv[1:] == ["--errors"]:
        for t in TYPES:
            errors = []
            for seed in range(1, 31):
                x = vector(KINDS[seed % 3], 128, seed)
                try:
                    v = encode(t, x)[2]
                except Unsure:
                    continue
                y = x if t == "fp8" else rotate(x, 128)
                errors.append(sum((a - b) ** 2 for a, b in zip(v, y)) / sum(b * b for b in y))
            print("%s %.5f mean %.5f most" % (t, sum(errors) / len(errors), max(errors)))
        return
    for t in TYPES:
        for dim in (32, 64, 96, 128, 256):
            for kind in KINDS:
                seed = 1
                while True:
                    try:
                        numbers, scales, _ = encode(t, vector(kind, dim, seed))
                        break
                    except Unsure:
                        seed += 1
                print(t, dim, kind, seed, row_bytes(t, numbers, scales).hex())


main()
