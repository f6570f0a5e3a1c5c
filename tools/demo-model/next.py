#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a head for the token after next for a demo model that is there already, which stays as it is.

  python3 next.py DEMO.gguf OUT_DIR [--seconds S] [--seed N]

The model is read from its GGUF file, tokenizer included; the corpus is that of train.py in rows of the model's own context.
Writes OUT_DIR/demo-mtp (a Hugging Face directory) and OUT_DIR/mtp.gguf (docs/speculation.md). One H200: 100 seconds.
"""
import argparse
import multiprocessing
import os
import struct
import subprocess
import sys
import time

import numpy as np
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import train  # noqa: E402

F32, Q8_0, ALIGN = 0, 8, 32
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
LAYER = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, kind):
        form = SCALARS[kind]
        v, = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return v

    def text(self):
        n = self.number(10)
        self.at += n
        return bytes(self.data[self.at - n:self.at]).decode("utf-8", "surrogatepass")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            of, n = self.number(4), self.number(10)
            return [self.value(of) for _ in range(n)]
        return self.number(kind)


def read_gguf(path):
    """(metadata, {name: array})"""
    r = Reader(np.fromfile(path, np.uint8).tobytes())
    r.at = 8
    n_tensors, n_pairs = r.number(10), r.number(10)
    meta = {}
    for _ in range(n_pairs):
        key = r.text()
        meta[key] = r.value(r.number(4))
    infos = []
    for _ in range(n_tensors):
        name = r.text()
        shape = [r.number(10) for _ in range(r.number(4))][::-1]
        infos.append((name, shape, r.number(4), r.number(10)))
    start, tensors = -(-r.at // ALIGN) * ALIGN, {}
    for name, shape, kind, offset in infos:
        count = int(np.prod(shape))
        if kind == F32:
            values = np.frombuffer(r.data, np.float32, count, start + offset)
        else:
            assert kind == Q8_0, (name, kind)
            blocks = np.frombuffer(r.data, np.dtype([("scale", "<f2"), ("q", "i1", 32)]), count // 32, start + offset)
            values = blocks["scale"].astype(np.float32)[:, None] * blocks["q"].astype(np.float32)
        tensors[name] = values.reshape(shape)
    return meta, tensors


def unpermute(w, heads):
    """Neighbouring rows of a head become its two halves again."""
    rows, cols = w.shape
    return w.reshape(heads, rows // heads // 2, 2, cols).transpose(0, 2, 1, 3).reshape(rows, cols)


def open_model(meta, tensors):
    c = train.MODELS["demo"]
    assert meta["llama.block_count"] == c["num_hidden_layers"] and meta["llama.embedding_length"] == c["hidden_size"]
    state = {"embed_tokens.weight": tensors["token_embd.weight"], "norm.weight": tensors["output_norm.weight"]}
    for name, w in tensors.items():
        if not name.startswith("blk."):
            continue
        _, layer, part, _ = name.split(".")
        if part in ("attn_q", "attn_k"):
            w = unpermute(w, c["num_attention_heads"] if part == "attn_q" else c["num_key_value_heads"])
        state["layers.%s.%s.weight" % (layer, LAYER[part])] = w
    model = train.Llama(c)
    missing, unexpected = model.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in state.items()}, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    return model.cuda()


def save_tokenizer(meta, path):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
    t = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tokens)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(train.PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s, k in zip(tokens, types) if k in (3, 4)])
    assert t.get_vocab_size() == len(tokens) == train.VOCAB
    t.save(path)


def use_context(context):
    """Rows as long as the model knows positions, as many tokens per step as ever."""
    train.BATCH, train.CONTEXT = train.BATCH * train.CONTEXT // context, context


def shard(job):
    path, seed, context, rows = job
    use_context(context)
    return train.make_shard((path, seed, rows, False))


def agreement(model, head, masks, ids, weights, owner):
    """How often the head says what the model says, where the model speaks."""
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        mask = masks.of(owner)
        hidden = model.hidden(ids, mask)
        same = (owner[:, 1:] == owner[:, :-1]).unsqueeze(-1)
        before = torch.cat((torch.zeros_like(hidden[:, :1]), hidden[:, :-1] * same), 1)
        z = head(model.embed_tokens(ids).to(torch.bfloat16), before, *model.angles(ids.shape[1]), mask)
        table = model.embed_tokens.weight.to(torch.bfloat16)
        right = (hidden @ table.T).argmax(-1) == (z @ table.T).argmax(-1)
        _, counts = train.following(ids, weights)
    return right[counts == 1].float().mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--seconds", type=float, default=100)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    begun = time.time()
    os.makedirs(a.out, exist_ok=True)
    meta, tensors = read_gguf(a.model)
    context, path = meta["llama.context_length"], os.path.join(a.out, "tokenizer.json")
    save_tokenizer(meta, path)
    use_context(context)
    torch.set_float32_matmul_precision("high")
    left = lambda: a.seconds - (time.time() - begun)
    shards, rows = [], 4 * train.SHARD_ROWS
    with multiprocessing.get_context("spawn").Pool(max(1, (os.cpu_count() or 4) - 2)) as pool:
        made = pool.imap_unordered(shard, [(path, a.seed * 100003 + i, context, rows) for i in range(4000)])
        model, masks = open_model(meta, tensors), train.Masks()
        train.warm_up(model, masks)
        until = time.time() + max(5.0, 0.3 * left())
        while time.time() < until or not shards:
            try:
                shards.append(made.next(timeout=max(0.5, until - time.time()) if shards else 60))
            except multiprocessing.TimeoutError:
                break
        pool.terminate()
    parts = tuple(torch.from_numpy(np.concatenate([s[i] for s in shards])).cuda() for i in range(3))
    print("%d M tokens, %.0f s" % (parts[0].numel() // 10**6, time.time() - begun), flush=True)
    batches = train.Rows(parts, parts, a.seed)
    held = batches.take(train.BATCH, False)
    head = train.train_next(model, masks, batches, 100000, left() - 14, a.seed)
    print("agreement %.3f" % agreement(model, head, masks, *held), flush=True)
    train.save(head, "demo-mtp", path, a.out)
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "export.py")
    subprocess.run([sys.executable, tool, os.path.join(a.out, "demo-mtp"), os.path.join(a.out, "mtp.gguf"), "Hearth demo MTP head"], check=True)
    print("all: %.0f s" % (time.time() - begun))


if __name__ == "__main__":
    main()
