#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what a GGUF or safetensors file holds, one fact per line, read with struct and json alone.

The tests compare these lines with what they asked our C writers to write. Tensor data is given as the CRC-32 of its bytes.
"""
import json
import struct
import sys
import zlib

CODES = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d"}
GGML = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 12: (256, 144), 30: (1, 2)}
DTYPES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "U16": 2, "U32": 4,
          "U64": 8, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}


class Cursor:
    def __init__(self, data):
        self.data, self.pos = data, 0

    def take(self, code):
        value, = struct.unpack_from(code, self.data, self.pos)
        self.pos += struct.calcsize(code)
        return value

    def text(self):
        n = self.take("<Q")
        self.pos += n
        return self.data[self.pos - n:self.pos].decode("utf-8", "backslashreplace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            elem, n = self.take("<I"), self.take("<Q")
            return [elem, [self.value(elem) for _ in range(n)]]
        return self.take(CODES[kind])


def gguf(data):
    c = Cursor(data)
    c.pos = 4
    version, n_tensors, n_keys = c.take("<I"), c.take("<Q"), c.take("<Q")
    print("gguf", version, n_tensors, n_keys)
    alignment, tensors = 32, []
    for _ in range(n_keys):
        name, kind = c.text(), c.take("<I")
        value = c.value(kind)
        if name == "general.alignment":
            alignment = value
        print("key", name, kind, json.dumps(value))
    for _ in range(n_tensors):
        name = c.text()
        dims = [c.take("<Q") for _ in range(c.take("<I"))]
        tensors.append((name, dims, c.take("<I"), c.take("<Q")))
    start = c.pos + -c.pos % alignment
    for name, dims, kind, offset in tensors:
        elems, block = GGML[kind]
        size = block
        for d in dims:
            size *= d
        size //= elems
        assert offset % alignment == 0 and start + offset + size <= len(data)
        print("tensor", name, kind, dims, zlib.crc32(data[start + offset:start + offset + size]))
    assert len(data) % alignment == 0


def safetensors(data):
    n, = struct.unpack_from("<Q", data, 0)
    header = json.loads(data[8:8 + n])
    assert (8 + n) % 8 == 0
    for key, value in header.pop("__metadata__", {}).items():
        print("metadata", key, json.dumps(value))
    for name, t in header.items():
        begin, end = t["data_offsets"]
        size = DTYPES[t["dtype"]]
        for d in t["shape"]:
            size *= d
        assert end - begin == size and 8 + n + end <= len(data)
        print("tensor", name, t["dtype"], t["shape"], zlib.crc32(data[8 + n + begin:8 + n + end]))


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as f:
        content = f.read()
    (gguf if content[:4] == b"GGUF" else safetensors)(content)
