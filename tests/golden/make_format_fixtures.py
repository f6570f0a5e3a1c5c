#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the model-file fixtures of tests/fixtures/formats with nothing but struct and json.

It shares no code with the C writers, so the C readers are tested against the formats as described, not against our own
output. Run it from anywhere; it is needed only when a fixture changes, the results are committed.

Tensor bytes follow one rule that the tests repeat: byte i of the tensor with seed s is (i * 7 + s * 31 + i // 256) % 256.
"""
import json
import os
import struct

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "formats")

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q", I64: "<q",
         F64: "<d"}
# number, elements and bytes of a block
GGML = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144),
        "Q6_K": (14, 256, 210), "I32": (26, 1, 4), "BF16": (30, 1, 2)}
DTYPES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "U16": 2, "U32": 4,
          "U64": 8, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}


def pattern(seed, n):
    return bytes((i * 7 + seed * 31 + i // 256) % 256 for i in range(n))


def save(path, data):
    path = os.path.join(OUT, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def gguf_string(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


def gguf_value(kind, value):
    if kind == STRING:
        return gguf_string(value)
    if kind == ARRAY:
        elem, items = value
        return struct.pack("<IQ", elem, len(items)) + b"".join(gguf_value(elem, x) for x in items)
    return struct.pack(CODES[kind], value)


def gguf(keys, tensors, version=3, alignment=32):
    """keys: [(name, kind, value)]; tensors: [(name, type, dims fastest first, seed)]"""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    for name, kind, value in keys:
        head += gguf_string(name) + struct.pack("<I", kind) + gguf_value(kind, value)
    body = b""
    for name, type_name, dims, seed in tensors:
        number, elems, block = GGML[type_name]
        count = 1
        for d in dims:
            count *= d
        assert dims[0] % elems == 0
        body += bytes(-len(body) % alignment)
        head += gguf_string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        head += struct.pack("<IQ", number, len(body))
        body += pattern(seed, count // elems * block)
    head += bytes(-len(head) % alignment)
    body += bytes(-len(body) % alignment)
    return head + body


def safetensors(tensors, metadata=None, pad=True):
    """tensors: [(name, dtype, shape slowest first, seed)]"""
    header, body = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape, seed in tensors:
        count = 1
        for d in shape:
            count *= d
        data = pattern(seed, count * DTYPES[dtype])
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    if pad:
        text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
TOKENS = ["<unk>", "<s>", "</s>", "a", "b", "\u00e9", "\u4f60\u597d", ""]

LLAMA = [
    ("general.architecture", STRING, "llama"),
    ("general.name", STRING, b"Tiny \x1b[31mred\x07\xff"),
    ("general.file_type", U32, 15),
    ("llama.context_length", U32, 2048),
    ("llama.embedding_length", U32, 64),
    ("llama.block_count", U32, 2),
    ("llama.attention.head_count", U32, 4),
    ("llama.attention.head_count_kv", U32, 2),
    ("llama.feed_forward_length", U32, 128),
    ("llama.vocab_size", U32, 8),
    ("tokenizer.ggml.model", STRING, "llama"),
    ("tokenizer.ggml.pre", STRING, "default"),
    ("tokenizer.ggml.tokens", ARRAY, (STRING, TOKENS)),
    ("tokenizer.ggml.scores", ARRAY, (F32, [0.0, -1.0, -2.5, -3.0, -4.0, -5.0, -6.0, -7.0])),
    ("tokenizer.ggml.token_type", ARRAY, (I32, [2, 3, 3, 1, 1, 1, 1, 1])),
    ("tokenizer.ggml.add_bos_token", BOOL, True),
    ("tokenizer.chat_template", STRING, TEMPLATE),
]

EVERY = [
    ("x.u8", U8, 200), ("x.i8", I8, -100), ("x.u16", U16, 60000), ("x.i16", I16, -30000), ("x.u32", U32, 4000000000),
    ("x.i32", I32, -2000000000), ("x.f32", F32, 0.1), ("x.true", BOOL, True), ("x.false", BOOL, False),
    ("x.string", STRING, "h\u00e9llo\0world"), ("x.empty", STRING, ""), ("x.u64", U64, 2**64 - 1),
    ("x.i64", I64, -2**63), ("x.f64", F64, 3.141592653589793),
    ("x.a.u8", ARRAY, (U8, [1, 2, 255])), ("x.a.i8", ARRAY, (I8, [-1, 2])), ("x.a.u16", ARRAY, (U16, [1, 65535])),
    ("x.a.i16", ARRAY, (I16, [-32768, 7])), ("x.a.u32", ARRAY, (U32, [0, 2**32 - 1])),
    ("x.a.i32", ARRAY, (I32, [-2**31, 5])), ("x.a.f32", ARRAY, (F32, [1.5, -0.25])),
    ("x.a.bool", ARRAY, (BOOL, [True, False, True])), ("x.a.string", ARRAY, (STRING, ["", "one", "tw\u00f6"])),
    ("x.a.u64", ARRAY, (U64, [2**64 - 1, 1])), ("x.a.i64", ARRAY, (I64, [-2**63, 9])),
    ("x.a.f64", ARRAY, (F64, [1e300, -2.5])), ("x.a.none", ARRAY, (I32, [])),
]

V3_TENSORS = [
    ("token_embd.weight", "Q8_0", [64, 8], 1),
    ("blk.0.attn_q.weight", "Q4_0", [64, 64], 2),
    ("blk.0.ffn_down.weight", "Q4_K", [256, 3], 3),
    ("blk.0.attn_norm.weight", "F32", [64], 4),
    ("blk.1.ffn_gate_exps.weight", "F16", [6, 5, 2], 5),
    ("blk.1.cube.weight", "BF16", [3, 2, 2, 2], 6),
    ("output.weight", "Q6_K", [256, 2], 7),
    ("rope_freqs.weight", "I32", [1], 8),
]


def write_gguf():
    save("v3.gguf", gguf(LLAMA + [("general.alignment", U32, 64)] + EVERY, V3_TENSORS, 3, 64))
    save("v2.gguf", gguf(LLAMA[:1] + EVERY[:5], V3_TENSORS[:3], 2))
    save("vocab-only.gguf", gguf(LLAMA, [], 3))
    parts = [V3_TENSORS[:3], V3_TENSORS[3:4], V3_TENSORS[4:]]
    for no, tensors in enumerate(parts):
        split = [("split.no", U16, no), ("split.count", U16, 3), ("split.tensors.count", I32, len(V3_TENSORS))]
        save("split/tiny-%05d-of-00003.gguf" % (no + 1), gguf((LLAMA if no == 0 else []) + split, tensors))


def write_safetensors():
    tensors = [("t." + name.lower(), name, [3, 4], seed) for seed, name in enumerate(DTYPES)]
    tensors += [("scalar", "F32", [], 40), ("empty", "F16", [0, 7], 41), ("five", "I16", [2, 1, 3, 1, 2], 42)]
    save("plain.safetensors", safetensors(tensors, {"format": "pt", "note": "caf\u00e9 \"quoted\""}))
    # an odd header length: the data is not aligned
    save("odd.safetensors", safetensors([("a", "F32", [2, 2], 1), ("b", "U8", [3], 2)], None, pad=False))


def write_hf():
    config = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "torch_dtype": "bfloat16",
              "vocab_size": 999,
              "text_config": {"model_type": "gemma3_text", "hidden_size": 64, "num_hidden_layers": 2,
                              "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
                              "max_position_embeddings": 4096, "vocab_size": 8},
              "vision_config": {"hidden_size": 32}}
    save("hf/config.json", json.dumps(config, indent=2))
    save("hf/generation_config.json", json.dumps({"eos_token_id": [1, 106], "temperature": 0.7}))
    a = [("model.embed_tokens.weight", "BF16", [8, 64], 1), ("model.layers.0.self_attn.q_proj.weight", "BF16", [64, 64], 2)]
    b = [("model.layers.0.input_layernorm.weight", "F32", [64], 3), ("lm_head.weight", "BF16", [8, 64], 4)]
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    save("hf/" + names[0], safetensors(a, {"format": "pt"}))
    save("hf/" + names[1], safetensors(b, {"format": "pt"}))
    weight_map = {t[0]: names[0] for t in a}
    weight_map.update({t[0]: names[1] for t in b})
    index = {"metadata": {"total_size": 10496}, "weight_map": weight_map}
    save("hf/model.safetensors.index.json", json.dumps(index, indent=2))
    tokenizer = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {t: i for i, t in
                 enumerate(TOKENS)}, "merges": []}}
    save("hf/tokenizer.json", json.dumps(tokenizer))
    save("hf/tokenizer_config.json", json.dumps({"chat_template": TEMPLATE, "bos_token": "<s>"}))
    save("fp8/config.json", json.dumps({"model_type": "deepseek_v3", "quantization_config": {
        "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}}))


def packed(name, rows, cols, bits, group, seed, scale="F16", biases=True, experts=None):
    """The two or three arrays of a packed module."""
    lead = [rows] if experts is None else [experts, rows]
    out = [(name + ".weight", "U32", lead + [cols * bits // 32], seed),
           (name + ".scales", scale, lead + [cols // group], seed + 1)]
    if biases:
        out.append((name + ".biases", scale, lead + [cols // group], seed + 2))
    return out


def write_mlx():
    layer = "model.layers.0."
    quantization = {"group_size": 64, "bits": 4, "mode": "affine"}
    tensors = packed("model.embed_tokens", 8, 64, 4, 64, 1)
    for seed, (name, bits, group) in enumerate([("q_proj", 2, 64), ("k_proj", 3, 32), ("v_proj", 5, 128),
                                                ("o_proj", 6, 64)]):
        module = layer + "self_attn." + name
        quantization[module] = {"group_size": group, "bits": bits}
        tensors += packed(module, 4, 128, bits, group, 10 + 3 * seed, "BF16")
    quantization[layer + "mlp.down_proj"] = {"bits": 8, "group_size": 32}
    tensors += packed(layer + "mlp.down_proj", 4, 64, 8, 32, 30, "F32")
    quantization[layer + "mlp.gate_proj"] = {"mode": "mxfp4", "group_size": 32, "bits": 4}
    tensors += packed(layer + "mlp.gate_proj", 4, 64, 4, 32, 40, "U8", False)
    quantization[layer + "mlp.up_proj"] = {"mode": "mxfp8"}  # the defaults of the mode: 32, 8
    tensors += packed(layer + "mlp.up_proj", 4, 64, 8, 32, 50, "U8", False)
    quantization[layer + "mlp.extra_proj"] = {"mode": "nvfp4", "bits": 4}
    tensors += packed(layer + "mlp.extra_proj", 4, 64, 4, 16, 60, "U8", False)
    tensors += packed(layer + "switch_mlp.up_proj", 4, 64, 4, 64, 70, experts=3)
    quantization[layer + "mlp.router"] = False
    tensors += [(layer + "mlp.router.weight", "F16", [4, 64], 80), (layer + "input_layernorm.weight", "F16", [64], 81),
                ("lm_head.weight", "F16", [8, 64], 82)]
    config = {"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
              "num_key_value_heads": 2, "max_position_embeddings": 1024, "vocab_size": 8, "quantization": quantization,
              "quantization_config": quantization}
    save("mlx/config.json", json.dumps(config, indent=1))
    save("mlx/model.safetensors", safetensors(tensors, {"format": "mlx"}))


def seed(target, name, data):
    path = os.path.join(OUT, "..", "..", "fuzz", "corpus", target)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def fixture(path):
    with open(os.path.join(OUT, path), "rb") as f:
        return f.read()


def write_seeds():
    """Small inputs that reach every branch of the readers; the fuzzers start from them."""
    tiny = [("a", "F32", [2], 1), ("b", "Q4_0", [32, 1], 2)]
    seed("fuzz_gguf", "keys", gguf(EVERY, []))
    seed("fuzz_gguf", "tensors", gguf([("general.architecture", STRING, "x")], tiny))
    seed("fuzz_gguf", "aligned", gguf([("general.alignment", U32, 8)], tiny, 2, 8))
    seed("fuzz_gguf", "split", fixture("split/tiny-00002-of-00003.gguf"))
    seed("fuzz_gguf", "vocabulary", fixture("vocab-only.gguf"))
    seed("fuzz_safetensors", "every", fixture("plain.safetensors"))
    seed("fuzz_safetensors", "odd", fixture("odd.safetensors"))
    seed("fuzz_safetensors", "metadata", safetensors([("x", "U8", [], 1)], {"format": "mlx", "a": ""}))
    seed("fuzz_json", "config", fixture("hf/config.json"))
    seed("fuzz_json", "scalars", '[0,-1,1.5,-2e-3,1e400,NaN,Infinity,-Infinity,true,false,null,"",9223372036854775808]')
    seed("fuzz_json", "strings", '{"\\u00e9\\ud83d\\ude00":"\\\\ \\" \\/ \\b\\f\\n\\r\\t","a":"\u4f60","a":{}}')
    seed("fuzz_json", "deep", "[" * 40 + "]" * 40)
    seed("fuzz_hf_dir", "hf", fixture("hf/config.json") + b"\0" + fixture("hf/model.safetensors.index.json"))
    seed("fuzz_hf_dir", "mlx", fixture("mlx/config.json"))
    seed("fuzz_hf_dir", "fp8", fixture("fp8/config.json"))
    for block in ['{"quant_method":"gptq","bits":4,"group_size":128}', '{"load_in_4bit":true}',
                  '{"group_size":32,"bits":8}', '{"quant_method":"awq","bits":4}']:
        seed("fuzz_hf_dir", "method-%d" % len(block), '{"quantization_config":%s}' % block)
    seed("fuzz_hf_dir", "escape", '{}\0{"weight_map":{"w":"../x.safetensors"}}')


if __name__ == "__main__":
    write_gguf()
    write_safetensors()
    write_hf()
    write_mlx()
    write_seeds()
