# SPDX-License-Identifier: Apache-2.0
"""Writes the demo model as GGUF, Q8_0 weights (the draft's embedding Q4_0), from its Hugging Face directory; standard library only.

  python3 export.py HF_DIR OUT.gguf [NAME] [bf16]     (bf16: the weights as they were trained, to measure what Q8_0 costs)

Facts of the format: docs/formats.md. Llama files store the rows of q and k permuted for interleaved rotary pairs.
"""
import array
import json
import os
import struct
import sys

ALIGN = 32
F32, Q4_0, Q8_0, BF16 = 0, 2, 8, 30
U32, I32, FLOAT, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def string(text):
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def value(kind, v):
    if kind == STRING:
        return string(v)
    return struct.pack({U32: "<I", I32: "<i", FLOAT: "<f", BOOL: "<?"}[kind], v)


def pair(key, kind, v, of=None):
    if kind == ARRAY:
        return string(key) + struct.pack("<IIQ", ARRAY, of, len(v)) + b"".join(value(of, x) for x in v)
    return string(key) + struct.pack("<I", kind) + value(kind, v)


def read_safetensors(path):
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
        body = f.read()
    for name, t in header.items():
        if name == "__metadata__":
            continue
        assert t["dtype"] == "BF16", t["dtype"]
        lo, hi = t["data_offsets"]
        halves = array.array("H", body[lo:hi])
        wide = array.array("I", (h << 16 for h in halves))
        yield name, t["shape"], array.array("f", wide.tobytes())


def q8_0(values):
    """32 values a block: an f16 scale, 32 signed bytes."""
    out = bytearray()
    for i in range(0, len(values), 32):
        block = values[i:i + 32]
        scale = max(max(block), -min(block)) / 127.0
        out += struct.pack("<e", scale)
        inverse = 1.0 / scale if scale else 0.0
        out += struct.pack("32b", *(round(v * inverse) for v in block))
    return bytes(out)


def q4_0(values):
    """32 values a block: an f16 scale, 16 bytes with value i low and value i + 16 high, both offset by 8."""
    out = bytearray()
    for i in range(0, len(values), 32):
        block = values[i:i + 32]
        extreme = max(block, key=abs)
        scale, = struct.unpack("<e", struct.pack("<e", extreme / -8.0))
        q = [min(15, max(0, round(v / scale) + 8)) if scale else 8 for v in block]
        out += struct.pack("<e", scale) + bytes(q[k] | q[k + 16] << 4 for k in range(16))
    return bytes(out)


def permute(values, rows, cols, heads):
    """Row i of a head's first half and row i of its second half become neighbours."""
    half = rows // heads // 2
    out = array.array("f")
    for h in range(heads):
        for i in range(half):
            for part in range(2):
                r = h * 2 * half + part * half + i
                out += values[r * cols:(r + 1) * cols]
    return out


NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "enorm": "nextn.enorm", "hnorm": "nextn.hnorm", "eh_proj": "nextn.eh_proj",
         "shared_head.norm": "nextn.shared_head_norm"}


def gguf_name(name):
    if name in NAMES:
        return NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    return "blk.%s.%s.weight" % (layer, LAYER[rest[:-len(".weight")]])


def text_meta(c, tokenizer, chat_template, name, file_type):
    """Keys of a Llama; chat_template None: a head, which uses its model's tokenizer."""
    heads = c.get("num_nextn_predict_layers", 0)  # a file of their own: blocks behind the model's last
    meta = [
        pair("general.architecture", STRING, "llama"), pair("general.name", STRING, name),
        pair("general.license", STRING, "cc0-1.0"), pair("general.file_type", U32, file_type),
        pair("llama.block_count", U32, c["num_hidden_layers"] + heads), pair("llama.context_length", U32, c["max_position_embeddings"]),
        pair("llama.embedding_length", U32, c["hidden_size"]), pair("llama.feed_forward_length", U32, c["intermediate_size"]),
        pair("llama.attention.head_count", U32, c["num_attention_heads"]), pair("llama.attention.head_count_kv", U32, c["num_key_value_heads"]),
        pair("llama.attention.key_length", U32, c["head_dim"]), pair("llama.attention.value_length", U32, c["head_dim"]),
        pair("llama.attention.layer_norm_rms_epsilon", FLOAT, c["rms_norm_eps"]), pair("llama.rope.freq_base", FLOAT, c["rope_theta"]),
        pair("llama.rope.dimension_count", U32, c["head_dim"]), pair("llama.vocab_size", U32, c["vocab_size"]),
    ]
    if heads:
        return meta + [pair("llama.nextn_predict_layers", U32, heads)]
    tokens = [None] * c["vocab_size"]
    for text, i in tokenizer["model"]["vocab"].items():
        tokens[i] = text
    types = [1] * len(tokens)
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]] = added["content"]
        types[added["id"]] = 3 if added["special"] else 4
    assert None not in tokens
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    return meta + [
        pair("tokenizer.ggml.model", STRING, "gpt2"), pair("tokenizer.ggml.pre", STRING, "qwen2"),
        pair("tokenizer.ggml.tokens", ARRAY, tokens, STRING), pair("tokenizer.ggml.token_type", ARRAY, types, I32),
        pair("tokenizer.ggml.merges", ARRAY, merges, STRING), pair("tokenizer.ggml.bos_token_id", U32, c["bos_token_id"]),
        pair("tokenizer.ggml.eos_token_id", U32, c["eos_token_id"]), pair("tokenizer.ggml.padding_token_id", U32, c["bos_token_id"]),
        pair("tokenizer.ggml.add_bos_token", BOOL, False), pair("tokenizer.chat_template", STRING, chat_template),
    ]


def write_gguf(path, meta, tensors):
    """tensors: (name, shape with the rows first, type, bytes)."""
    infos, blobs, offset = [], [], 0
    for name, shape, kind, data in tensors:
        infos.append(string(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in reversed(shape))
                     + struct.pack("<IQ", kind, offset))
        data += bytes(-len(data) % ALIGN)
        blobs.append(data)
        offset += len(data)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(meta)) + b"".join(meta) + b"".join(infos)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGN))
        for blob in blobs:
            f.write(blob)
    print("%s: %d tensors, %d bytes" % (path, len(infos), os.path.getsize(path)))


def tensors_of(folder, c, plain):
    small = c["hidden_size"] <= 256
    for name, shape, values in read_safetensors(os.path.join(folder, "model.safetensors")):
        if name.endswith("q_proj.weight"):
            values = permute(values, shape[0], shape[1], c["num_attention_heads"])
        elif name.endswith("k_proj.weight"):
            values = permute(values, shape[0], shape[1], c["num_key_value_heads"])
        if len(shape) == 1:
            kind, data = F32, values.tobytes()
        elif plain:
            kind, data = BF16, array.array("H", values.tobytes())[1::2].tobytes()
        elif small and name == "model.embed_tokens.weight":
            kind, data = Q4_0, q4_0(values)
        else:
            kind, data = Q8_0, q8_0(values)
        yield gguf_name(name), shape, kind, data


def main():
    folder, path = sys.argv[1], sys.argv[2]
    load = lambda f: json.load(open(os.path.join(folder, f), encoding="utf-8"))
    c, plain = load("config.json"), sys.argv[4:] == ["bf16"]
    name = sys.argv[3] if len(sys.argv) > 3 else os.path.basename(folder)
    meta = text_meta(c, load("tokenizer.json"), load("tokenizer_config.json")["chat_template"], name, 32 if plain else 7)
    write_gguf(path, meta, tensors_of(folder, c, plain))


if __name__ == "__main__":
    main()
