# SPDX-License-Identifier: Apache-2.0
"""Trains the demo model and its draft sibling on one GPU; see README.md.

  python3 train.py OUT_DIR [--steps N] [--draft-steps N] [--limit-minutes M] [--seed S]

Writes OUT_DIR/demo and OUT_DIR/demo-draft as Hugging Face directories (bf16 safetensors, tokenizer, chat template).
"""
import argparse
import json
import math
import multiprocessing
import os
import random
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from skills import Split, draw  # noqa: E402
from stories import story  # noqa: E402
from text import CHAT_TEMPLATE, SPECIAL, render  # noqa: E402

CONTEXT = 1024
VOCAB = 8192
READ_WEIGHT = 0.1  # what the model only reads is learned a little, so that it learns to read

MODELS = {
    "demo": dict(hidden_size=512, num_hidden_layers=7, num_attention_heads=8, num_key_value_heads=2, head_dim=64, intermediate_size=1024),
    "demo-draft": dict(hidden_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=64, intermediate_size=512),
}


# -- tokenizer ---------------------------------------------------------------------------------------------------------

# The published pattern of Qwen2: single digits, which small arithmetic needs. GGUF files call it "qwen2".
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def train_tokenizer(seed):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    rng = random.Random(seed)
    split = Split(False)

    def texts():
        for _ in range(150000):
            e = draw(rng, split)
            yield "".join(t for t, _ in render(e.messages, e.tools, e.thinking))

    trainer = trainers.BpeTrainer(vocab_size=VOCAB, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
                                  special_tokens=[AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    tokenizer.train_from_iterator(texts(), trainer)
    return tokenizer


# -- data --------------------------------------------------------------------------------------------------------------

def make_shard(job):
    """n_rows rows of CONTEXT tokens, each packed with whole conversations: ids, loss weights (1 for what the model says,
    READ_WEIGHT for what it reads, 0 for padding) and the number of the conversation within its row."""
    from tokenizers import Tokenizer
    path, seed, n_rows = job
    tokenizer = Tokenizer.from_file(path)
    rng = random.Random(seed)
    split = Split(False)
    end = tokenizer.token_to_id("<|endoftext|>")
    ids = np.full((n_rows, CONTEXT), end, np.int16)  # ids fit: the vocabulary has 8192
    weights = np.zeros((n_rows, CONTEXT), np.float16)
    owner = np.zeros((n_rows, CONTEXT), np.uint8)
    row, at, number = 0, 0, 0
    while row < n_rows:
        conversations = []
        for _ in range(256):
            if rng.random() < 0.03:
                conversations.append([(story(rng), True)])
            else:
                e = draw(rng, split)
                conversations.append(render(e.messages, e.tools, e.thinking))
        encoded = iter(tokenizer.encode_batch([t for c in conversations for t, _ in c], add_special_tokens=False))
        for c in conversations:
            pieces = [(next(encoded).ids, 1.0 if learn else READ_WEIGHT) for _, learn in c] + [([end], READ_WEIGHT)]
            size = sum(len(p) for p, _ in pieces)
            if size > CONTEXT:
                continue
            if at + size > CONTEXT:
                row, at, number = row + 1, 0, 0
                if row == n_rows:
                    break
            owner[row, at:] = number
            number += 1
            for p, w in pieces:
                ids[row, at:at + len(p)] = p
                weights[row, at:at + len(p)] = w
                at += len(p)
    return ids, weights, owner


# -- model: Llama as published configs describe it -------------------------------------------------------------------------

class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), 1e-5)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv, self.dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        h = c["hidden_size"]
        self.input_layernorm, self.post_attention_layernorm = Norm(h), Norm(h)
        self.self_attn = nn.ModuleDict(dict(q_proj=nn.Linear(h, self.heads * self.dim, False), k_proj=nn.Linear(h, self.kv * self.dim, False),
                                            v_proj=nn.Linear(h, self.kv * self.dim, False), o_proj=nn.Linear(self.heads * self.dim, h, False)))
        self.mlp = nn.ModuleDict(dict(gate_proj=nn.Linear(h, c["intermediate_size"], False), up_proj=nn.Linear(h, c["intermediate_size"], False),
                                      down_proj=nn.Linear(c["intermediate_size"], h, False)))

    def forward(self, x, cos, sin, mask):
        b, t, _ = x.shape
        n, w = self.input_layernorm(x), self.self_attn
        q = rotate(w["q_proj"](n).view(b, t, self.heads, self.dim).transpose(1, 2), cos, sin)
        k = rotate(w["k_proj"](n).view(b, t, self.kv, self.dim).transpose(1, 2), cos, sin)
        v = w["v_proj"](n).view(b, t, self.kv, self.dim).transpose(1, 2)
        y = flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
        x = x + w["o_proj"](y.transpose(1, 2).reshape(b, t, -1))
        n, w = self.post_attention_layernorm(x), self.mlp
        return x + w["down_proj"](F.silu(w["gate_proj"](n)) * w["up_proj"](n))


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(VOCAB, c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"])
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)
        for layer in self.layers:
            for p in (layer.self_attn["o_proj"].weight, layer.mlp["down_proj"].weight):
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * c["num_hidden_layers"]))
        inv = 1.0 / 10000.0 ** (torch.arange(0, c["head_dim"], 2).float() / c["head_dim"])
        angle = torch.arange(CONTEXT).float()[:, None] * inv[None]
        angle = torch.cat((angle, angle), -1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids, mask):
        x = self.embed_tokens(ids)
        t = ids.shape[1]
        cos, sin = self.cos[:t].to(torch.bfloat16), self.sin[:t].to(torch.bfloat16)
        x = x.to(torch.bfloat16)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return F.linear(self.norm(x), self.embed_tokens.weight.to(torch.bfloat16))


def conversation_mask(owner):
    """Causal, and only within a conversation: what a model is asked must not depend on what was packed before it."""
    def allowed(b, h, q, k):
        return (q >= k) & (owner[b, q] == owner[b, k])
    return create_block_mask(allowed, owner.shape[0], None, CONTEXT, CONTEXT, device="cuda")


def loss_of(model, ids, weights, owner):
    logits = model(ids, conversation_mask(owner))[:, :-1]
    loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten().long(), reduction="none")
    w = weights[:, 1:].flatten().float()
    return (loss * w).sum() / w.sum()


def train(name, table, wtable, owner, steps, batch, peak, limit_s, seed):
    torch.manual_seed(seed)
    c = MODELS[name]
    model = Llama(c).cuda()
    print("%s: %.2f M parameters" % (name, sum(p.numel() for p in model.parameters()) / 1e6))
    decay = [p for p in model.parameters() if p.dim() >= 2]
    other = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": other, "weight_decay": 0.0}],
                                  lr=peak, betas=(0.9, 0.95), eps=1e-8, fused=True)
    compiled = torch.compile(loss_of)
    rows = len(table)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    started = time.time()
    step, measured, total = 0, None, steps
    while step < total:
        picks = order[torch.arange(step * batch, (step + 1) * batch) % rows].cuda()
        ids, w, o = table[picks].int(), wtable[picks], owner[picks].int()
        rate = peak * min(1.0, (step + 1) / 100) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * step / total)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(model, ids, w, o)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step == 20:
            torch.cuda.synchronize()
            measured = time.time()
        if step == 60:  # fewer steps where this machine is too slow for the time limit
            torch.cuda.synchronize()
            per = (time.time() - measured) / 40
            fits = int((limit_s - (time.time() - started)) / per)
            total = min(total, 60 + fits)
            print("%s: %.0f ms a step, %.2f M tokens/s, %d steps" % (name, per * 1e3, batch * CONTEXT / per / 1e6, total))
        if step % 200 == 0 or step == total:
            print("%s: step %d loss %.4f  %.0f s" % (name, step, loss.item(), time.time() - started), flush=True)
    return model


def show_markers(path):
    """Markers of thoughts and tool calls are part of the text that a program reads; only turn markers are special."""
    with open(path, encoding="utf-8") as f:
        tokenizer = json.load(f)
    for token in tokenizer["added_tokens"]:
        token["special"] = token["content"].startswith("<|")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(tokenizer, f, ensure_ascii=False, indent=1)


def save(model, name, tokenizer_path, out):
    from safetensors.torch import save_file
    from tokenizers import Tokenizer
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    tokenizer = Tokenizer.from_file(tokenizer_path)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    show_markers(os.path.join(folder, "tokenizer.json"))
    end, stop = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>")
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=VOCAB, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5,
                  rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=True, attention_bias=False, mlp_bias=False,
                  bos_token_id=end, eos_token_id=stop, torch_dtype="bfloat16", **model.c)
    generation = dict(bos_token_id=end, eos_token_id=[stop, end], pad_token_id=end)
    special = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False,
               "model_max_length": CONTEXT, "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT_TEMPLATE}
    for file, value in (("config.json", config), ("generation_config.json", generation), ("tokenizer_config.json", special)):
        with open(os.path.join(folder, file), "w") as f:
            json.dump(value, f, indent=1)
    tensors = {"model." + k: v.detach().to(torch.bfloat16).contiguous().cpu() for k, v in model.state_dict().items()}
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--steps", type=int, default=3000)
    p.add_argument("--draft-steps", type=int, default=1500)
    p.add_argument("--tokens", type=int, default=320_000_000)
    p.add_argument("--limit-minutes", type=float, default=20)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    begun = time.time()
    os.makedirs(a.out, exist_ok=True)
    path = os.path.join(a.out, "tokenizer.json")
    train_tokenizer(a.seed).save(path)
    print("tokenizer: %.0f s" % (time.time() - begun), flush=True)
    shards = 4 * (os.cpu_count() or 4)
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        made = pool.map(make_shard, [(path, a.seed * 100003 + i, a.tokens // CONTEXT // shards) for i in range(shards)], chunksize=1)
    data, weights, owner = (torch.from_numpy(np.concatenate([m[i] for m in made])).cuda() for i in range(3))
    print("data: %.0f M tokens, %.0f%% of the rows filled, %.0f s" % (data.numel() / 1e6, 100 * (weights > 0).float().mean().item(),
                                                                      time.time() - begun), flush=True)
    limit = a.limit_minutes * 60
    torch.set_float32_matmul_precision("high")
    model = train("demo", data, weights, owner, a.steps, 256, 2e-3, (limit - (time.time() - begun)) * 0.85, a.seed)
    save(model, "demo", path, a.out)
    draft = train("demo-draft", data, weights, owner, a.draft_steps, 256, 4e-3, limit - (time.time() - begun) - 10, a.seed)
    save(draft, "demo-draft", path, a.out)
    print("all: %.0f s" % (time.time() - begun))


if __name__ == "__main__":
    main()
