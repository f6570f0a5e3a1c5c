#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/kv/*.hkv from the description in src/kv/entry.h alone: struct, hashlib and a plain XXH64. The
numbers below are repeated in tests/unit/kv/test_kv_entry.c. version1.hkv is what version 1 of the format wrote for the page
of first.hkv: it had neither a namespace nor content keys."""
import hashlib
import pathlib
import struct

M = (1 << 64) - 1
P1, P2, P3, P4, P5 = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579,
                      2870177450012600261)


def rotl(x, n):
    return (x << n | x >> (64 - n)) & M


def xxh64(data):
    n, at = len(data), 0
    if n >= 32:
        acc = [(P1 + P2) & M, P2, 0, (-P1) & M]
        while n - at >= 32:
            for i in range(4):
                (lane,) = struct.unpack_from("<Q", data, at + 8 * i)
                acc[i] = rotl((acc[i] + lane * P2) & M, 31) * P1 & M
            at += 32
        h = (rotl(acc[0], 1) + rotl(acc[1], 7) + rotl(acc[2], 12) + rotl(acc[3], 18)) & M
        for a in acc:
            h = ((h ^ rotl(a * P2 & M, 31) * P1 & M) * P1 + P4) & M
    else:
        h = P5
    h = (h + n) & M
    while n - at >= 8:
        (lane,) = struct.unpack_from("<Q", data, at)
        h = (rotl(h ^ rotl(lane * P2 & M, 31) * P1 & M, 27) * P1 + P4) & M
        at += 8
    if n - at >= 4:
        (lane,) = struct.unpack_from("<I", data, at)
        h = (rotl(h ^ lane * P1 & M, 23) * P2 + P3) & M
        at += 4
    for b in data[at:]:
        h = rotl(h ^ b * P5 & M, 11) * P1 & M
    h = (h ^ h >> 33) * P2 & M
    h = (h ^ h >> 29) * P3 & M
    return h ^ h >> 32


PAGE_TOKENS, GROUPS, K_TYPE, V_TYPE, PAGE_BYTES, STATE_BYTES = 16, 2, 1, 3, [96, 40], 24
MODEL = bytes(range(100, 116))


SPACE = bytes(range(200, 216))


def identity(version, space):
    h = bytearray(120 if version > 1 else 104)
    h[0:8] = b"HEARTHKV"
    struct.pack_into("<I", h, 8, version)
    struct.pack_into("<I", h, 16, PAGE_TOKENS)
    struct.pack_into("<III", h, 32, GROUPS, K_TYPE, V_TYPE)
    struct.pack_into("<QQ", h, 48, *PAGE_BYTES)
    struct.pack_into("<Q", h, 80, STATE_BYTES)
    h[88:104] = MODEL
    if version > 1:
        h[104:120] = space
    return h


def digest(data):
    return hashlib.sha256(bytes(data)).digest()[:16]


def root(version, space=bytes(16)):
    h = identity(version, space)
    if version > 1:
        return digest(h)
    return digest(b"HEARTHKV" + bytes(16) + h[16:] + bytes(48))  # the magic, then a header without magic and version


def key(kind, parent, tokens, rows=b""):
    return digest(parent + struct.pack("<II%di" % len(tokens), kind, len(tokens), *tokens) + rows)


def entry(kind, position, groups, parent, tokens, payload, space=bytes(16), rows=b"", version=2):
    h = identity(version, space)
    struct.pack_into("<I", h, 12, kind)
    struct.pack_into("<III", h, 20, len(tokens), position, groups)
    struct.pack_into("<I", h, 44, len(rows) // 16)
    h += parent + key(kind, parent, tokens, rows) + struct.pack("<QQ", len(payload), xxh64(payload))
    h += struct.pack("<%di" % len(tokens), *tokens) + rows
    return bytes(h + struct.pack("<Q", xxh64(bytes(h))) + payload)


def main():
    out = pathlib.Path(__file__).parent.parent / "fixtures" / "kv"
    first = [7 * i for i in range(16)]
    second = [-1, 0, 2147483647, 5, 6]
    parent = key(1, root(2), first)
    pages = bytes(i * 5 % 256 for i in range(sum(PAGE_BYTES)))
    (out / "page.hkv").write_bytes(entry(1, 16, 3, parent, second, pages))
    (out / "first.hkv").write_bytes(entry(1, 0, 1, root(2), first, pages[:PAGE_BYTES[0]]))
    (out / "state.hkv").write_bytes(entry(2, 16, 0, parent, second[:3], bytes(range(STATE_BYTES))))
    rows = bytes(32) + bytes(range(1, 33)) + bytes(16)  # of five tokens the third and the fourth are supplied
    (out / "rows.hkv").write_bytes(entry(1, 0, 3, root(2, SPACE), second, pages, SPACE, rows))
    (out / "version1.hkv").write_bytes(entry(1, 0, 1, root(1), first, pages[:PAGE_BYTES[0]], version=1))


main()
