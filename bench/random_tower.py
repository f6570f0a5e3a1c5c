# SPDX-License-Identifier: Apache-2.0
"""Towers of real shape with random weights, as mmproj files, and small language models that fit them: for measuring how long a
picture takes, here and in other programs that read these files.

    python3 bench/random_tower.py KIND OUT [LAYERS]      writes OUT/model.gguf and OUT/mmproj.gguf

    gemma3     SigLIP so400m: 27 layers, width 1152, pictures of 896 x 896, 4096 patches
    qwen3vl    27 layers, width 1152, patches of 16 pixels: 4096 of them in 1024 x 1024
    deep       the same, and what three of its layers leave is merged, too
    pixtral    24 layers, width 1024, as many patches
"""
import os
import random
import struct
import sys

WIDE = 512  # of the language model
F32, F16 = 0, 1


def f16(n):
    """n weights between 1/64 and 1/32 in size: the low byte of each is random, the high one has a sign and an exponent."""
    block = min(n, 1 << 20)
    data = bytearray(2 * block)
    data[0::2] = random.randbytes(block)
    data[1::2] = random.randbytes(block).translate(bytes((0x80 if i & 128 else 0) | 0x24 | (i & 3) for i in range(256)))
    return bytes(data) * (n // block) + bytes(data[: 2 * (n % block)])


def f32(n, value):
    return struct.pack("<f", value) * n


class File:
    def __init__(self, arch):
        self.arch, self.keys, self.tensors = arch, [], []
        self.key("general.architecture", arch, whole=True)

    @staticmethod
    def text(s):
        return struct.pack("<Q", len(s.encode())) + s.encode()

    def value(self, x):
        if isinstance(x, list):
            kind, _ = self.value(x[0])
            return 9, struct.pack("<IQ", kind, len(x)) + b"".join(self.value(v)[1] for v in x)
        if isinstance(x, str):
            return 8, self.text(x)
        if isinstance(x, bool):
            return 7, struct.pack("<?", x)
        return (6, struct.pack("<f", x)) if isinstance(x, float) else (4, struct.pack("<I", x))

    def key(self, name, x, whole=False):
        kind, data = self.value(x)
        self.keys.append(self.text(name if whole else f"{self.arch}.{name}") + struct.pack("<I", kind) + data)

    def add(self, name, *dims, value=None):
        """dims: the innermost first. value: f32 of this, else random f16."""
        n = 1
        for d in dims:
            n *= d
        self.tensors.append((name, dims, F16 if value is None else F32, n, value))

    def linear(self, name, n_in, n_out):
        self.add(name + ".weight", n_in, n_out)
        self.add(name + ".bias", n_out, value=0.01)

    def norm(self, name, n, bias=True):
        self.add(name + ".weight", n, value=1.0)
        if bias:
            self.add(name + ".bias", n, value=0.0)

    def write(self, path):
        head, at = struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.keys)) + b"".join(self.keys), 0
        for name, dims, kind, n, _ in self.tensors:
            head += self.text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at)
            at += (n * (2 if kind == F16 else 4) + 31) // 32 * 32
        with open(path, "wb") as f:
            f.write(head + bytes(-len(head) % 32))
            for _, _, kind, n, value in self.tensors:
                data = f16(n) if kind == F16 else f32(n, value)
                f.write(data + bytes(-len(data) % 32))


def pixtral(g, layers, d, ff):
    for i in range(layers):
        b = f"v.blk.{i}."
        g.norm(b + "ln1", d, bias=False)
        g.norm(b + "ln2", d, bias=False)
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            g.add(b + name + ".weight", d, d)
        g.add(b + "ffn_gate.weight", d, ff)
        g.add(b + "ffn_up.weight", d, ff)
        g.add(b + "ffn_down.weight", ff, d)
    g.norm("v.pre_ln", d, bias=False)
    g.linear("mm.1", d, WIDE)
    g.linear("mm.2", WIDE, WIDE)
    return g


def tower(kind, layers):
    d, ff, patch, image = {"gemma3": (1152, 4304, 14, 896), "pixtral": (1024, 4096, 16, 1024)}.get(kind, (1152, 4304, 16, 768))
    g = File("clip")
    gemma, deep = kind == "gemma3", kind == "deep"
    g.key("has_vision_encoder", True)
    g.key("use_gelu", True)
    g.key("projector_type", {"gemma3": "gemma3", "pixtral": "pixtral"}.get(kind, "qwen3vl_merger"))
    for key, x in {"block_count": layers, "embedding_length": d, "feed_forward_length": ff, "attention.head_count": 16, "patch_size": patch,
                   "image_size": image, "projection_dim": WIDE, "attention.layer_norm_epsilon": 1e-6, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}.items():
        g.key("vision." + key, x)
    g.add("v.patch_embd.weight", patch, patch, 3, d)
    if kind == "pixtral":
        return pixtral(g, layers, d, ff)
    g.add("v.patch_embd.bias", d, value=0.0)
    g.add("v.position_embd.weight", d, (image // patch) ** 2, value=0.01)
    for i in range(layers):
        b = f"v.blk.{i}."
        g.norm(b + "ln1", d)
        g.norm(b + "ln2", d)
        if gemma:
            for name in ("attn_q", "attn_k", "attn_v"):
                g.linear(b + name, d, d)
        else:
            g.linear(b + "attn_qkv", d, 3 * d)
        g.linear(b + "attn_out", d, d)
        g.linear(b + "ffn_up", d, ff)
        g.linear(b + "ffn_down", ff, d)
    g.norm("v.post_ln", d)
    if gemma:
        g.add("mm.soft_emb_norm.weight", d, value=1.0)
        g.add("mm.input_projection.weight", WIDE, d)
        return g
    g.key("vision.spatial_merge_size", 2)
    taps = [i for i in (8, 16, 24) if deep and i < layers]
    g.key("vision.is_deepstack_layers", [i in taps for i in range(layers)])
    g.add("v.patch_embd.weight.1", patch, patch, 3, d)
    g.linear("mm.0", 4 * d, 4 * d)
    g.linear("mm.2", 4 * d, WIDE)
    for i in taps:
        g.norm(f"v.deepstack.{i}.norm", 4 * d)
        g.linear(f"v.deepstack.{i}.fc1", 4 * d, 4 * d)
        g.linear(f"v.deepstack.{i}.fc2", 4 * d, WIDE)
    return g


def words():
    """Every byte by itself, as GPT-2 writes them, and the words around pictures."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters = [chr(b) if b in plain else chr(256 + [x for x in range(256) if x not in plain].index(b)) for b in range(256)]
    return letters + ["<bos>", "<eos>", "<start_of_image>", "<image_soft_token>", "<end_of_image>", "<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "[IMG]", "[IMG_BREAK]", "[IMG_END]"]


TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def language(kind):
    """One layer, which is over at once; four where parts of a picture are added behind the first three."""
    arch, vocab = {"gemma3": "gemma3", "pixtral": "llama"}.get(kind, "qwen3vl"), words()
    g, heads, dim = File(arch), 8, 64
    layers = 4 if kind == "deep" else 1
    for key, x in {"block_count": layers, "context_length": 32768, "embedding_length": WIDE, "feed_forward_length": 1024, "attention.head_count": heads,
                   "attention.head_count_kv": heads, "attention.key_length": dim, "attention.value_length": dim, "attention.layer_norm_rms_epsilon": 1e-6,
                   "rope.freq_base": 10000.0}.items():
        g.key(key, x)
    if arch == "gemma3":
        g.key("attention.sliding_window", 1024)
    elif arch == "qwen3vl":
        g.key("rope.dimension_sections", [12, 10, 10, 0])
        g.key("n_deepstack_layers", 3 if kind == "deep" else 0)
    for key, x in {"model": "gpt2", "pre": "gpt-2", "tokens": vocab, "merges": ["a b"], "bos_token_id": 256, "eos_token_id": 257,
                   "add_bos_token": True, "chat_template": TEMPLATE}.items():
        g.key("tokenizer." + ("" if key == "chat_template" else "ggml.") + key, x, whole=True)
    types = b"".join(struct.pack("<i", 1 if i < 256 else 3) for i in range(len(vocab)))
    g.keys.append(g.text("tokenizer.ggml.token_type") + struct.pack("<IIQ", 9, 5, len(vocab)) + types)
    g.add("token_embd.weight", WIDE, len(vocab))
    g.norm("output_norm", WIDE, bias=False)
    for i in range(layers):
        b = f"blk.{i}."
        for name in ("attn_norm", "ffn_norm") + (("post_attention_norm", "post_ffw_norm") if arch == "gemma3" else ()):
            g.norm(b + name, WIDE, bias=False)
        for name in ("attn_q_norm", "attn_k_norm") if arch != "llama" else ():
            g.norm(b + name, dim, bias=False)
        for name, n_in, n_out in (("attn_q", WIDE, WIDE), ("attn_k", WIDE, WIDE), ("attn_v", WIDE, WIDE), ("attn_output", WIDE, WIDE),
                                  ("ffn_gate", WIDE, 1024), ("ffn_up", WIDE, 1024), ("ffn_down", 1024, WIDE)):
            g.add(b + name + ".weight", n_in, n_out)
    return g


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("gemma3", "qwen3vl", "deep", "pixtral"):
        raise SystemExit(__doc__)
    random.seed(1)
    os.makedirs(sys.argv[2], exist_ok=True)
    tower(sys.argv[1], int(sys.argv[3]) if len(sys.argv) > 3 else 27).write(os.path.join(sys.argv[2], "mmproj.gguf"))
    language(sys.argv[1]).write(os.path.join(sys.argv[2], "model.gguf"))


if __name__ == "__main__":
    main()
