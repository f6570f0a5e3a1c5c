#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/tensor/iq_numbers.h from a JSON file with the IQ codebooks as plain numbers.

usage: make_iq_grids.py GRIDS.json > src/tensor/iq_numbers.h

The file maps a type name to {"shape": [rows, width], "values": [...]}. A codebook uses few distinct values (levels), so a
row is stored as one number: the index of its first value's level in the lowest bits, 2 bits each for widths of 8 and 3 bits
each for widths of 4.
"""
import json
import sys

GRIDS = [  # type, bits per value, levels
    ("IQ1_S", 2, [-1, 0, 1]),
    ("IQ2_XXS", 2, [8, 25, 43]),
    ("IQ2_XS", 2, [8, 25, 43]),
    ("IQ2_S", 2, [8, 25, 43]),
    ("IQ3_XXS", 3, [4, 12, 20, 28, 36, 44, 52, 62]),
    ("IQ3_S", 3, [1, 3, 5, 7, 9, 11, 13, 15]),
]


def main():
    grids = json.load(open(sys.argv[1]))
    out = ["/* SPDX-License-Identifier: Apache-2.0 */",
           "/* The codebooks of the IQ types as lists of numbers, for those that keep a table of them (iq_grids.c, kernels of a",
           " * device). Written by tools/make_iq_grids.py; the coding is explained in iq_grids.h. */",
           "#ifndef TENSOR_IQ_NUMBERS_H", "#define TENSOR_IQ_NUMBERS_H", "", "/* clang-format off */"]
    for name, bits, levels in GRIDS:
        rows, width = grids[name]["shape"]
        values = grids[name]["values"]
        assert len(values) == rows * width and set(values) <= set(levels), name
        codes = []
        for r in range(rows):
            row = values[r * width:(r + 1) * width]
            codes.append(sum(levels.index(v) << (bits * i) for i, v in enumerate(row)))
        digits = (bits * width + 3) // 4
        per_line = 16 if digits == 3 else 13
        lines = [", ".join(f"0x{c:0{digits}x}" for c in codes[i:i + per_line]) for i in range(0, rows, per_line)]
        out += ["", f"#define TENSOR_{name}_GRID \\", ", \\\n".join("    " + line for line in lines)]
    print("\n".join(out + ["", "#endif"]))


main()
