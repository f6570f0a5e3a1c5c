# SPDX-License-Identifier: Apache-2.0
"""Trains the demo model, its head for the token after next and its draft sibling on one GPU; see README.md.

  python3 train.py OUT_DIR [--steps N] [--limit-minutes M] [--seed S] [--export DIR] [--no-draft]

Writes OUT_DIR/demo, demo-mtp and demo-draft as Hugging Face directories (bf16 safetensors, tokenizer, chat template);
--export writes them as GGUF too, each as soon as it is trained.
"""
import argparse
import json
import math
import multiprocessing
import os
import random
import subprocess
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from skills import Split, draw, earlier_turns, needle  # noqa: E402
from stories import story  # noqa: E402
from text import CHAT_TEMPLATE, SPECIAL, render  # noqa: E402

CONTEXT = 4096
VOCAB = 8192
BATCH, BLOCK = 64, 128  # rows of a step; positions that attention takes or leaves together
SHARD_ROWS = 96
READ_WEIGHT = 0.1  # what the model only reads is learned a little, so that it learns to read
SHORT_PART = 0.6  # of the training sees short conversations only; then long ones come too

TOOLS_SHARE = 0.07  # calls beside those that skills.py draws: their exact form is the hardest to keep in long conversations
# Of the conversations in the second part; they are ten to twenty times as long as the others.
NEEDLE_SHARE, LONG_CHAT_SHARE = 0.035, 0.01

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

ANSWER = "<|im_start|>assistant\n<think>\n\n</think>\n\n"


def learn_every_answer(parts):
    """render() lets the last answer be learned; here the earlier ones are as hard."""
    for text, learn in parts:
        if not learn and text.startswith(ANSWER) and len(text) > len(ANSWER):
            yield ANSWER, False
            yield text[len(ANSWER):], True
        else:
            yield text, learn


def conversation(rng, split, long):
    """One conversation as [(text, learn)]."""
    chance = rng.random()
    if chance < 0.03:
        return [(story(rng), True)]
    if long and chance < 0.03 + NEEDLE_SHARE:
        e = None
        while not e:
            e = needle(rng, split)
        return list(learn_every_answer(render(e.messages)))
    e = draw(rng, split, "tools" if rng.random() < TOOLS_SHARE else None)
    if long and chance < 0.03 + NEEDLE_SHARE + LONG_CHAT_SHARE and e.skill != "persona":
        at = 1 if e.messages[0]["role"] == "system" else 0
        e.messages[at:at] = earlier_turns(rng, rng.randint(10, 50))
    return render(e.messages, e.tools, e.thinking)


def make_shard(job):
    """n_rows rows of CONTEXT tokens, each packed with whole conversations: ids, loss weights (1 for what the model says,
    READ_WEIGHT for what it reads, 0 for padding) and the number of the conversation within its row."""
    from tokenizers import Tokenizer
    path, seed, n_rows, long = job
    tokenizer = Tokenizer.from_file(path)
    rng = random.Random(seed)
    split = Split(False)
    end = tokenizer.token_to_id("<|endoftext|>")
    ids = np.full((n_rows, CONTEXT), end, np.int16)  # ids fit: the vocabulary has 8192
    weights = np.zeros((n_rows, CONTEXT), np.float16)
    owner = np.zeros((n_rows, CONTEXT), np.int16)
    row, at, number = 0, 0, 0
    while row < n_rows:
        conversations = [conversation(rng, split, long) for _ in range(256)]
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


class Compiled:
    """A function compiled by torch, or `plain` instead where that fails: a training that is slower is better than none."""
    working = True

    def __init__(self, function, plain=None):
        self.fast, self.plain = torch.compile(function, dynamic=False), plain or function

    def __call__(self, *values):
        return self.fast(*values) if Compiled.working else self.plain(*values)


def inputs(x, norm, wq, wk, wv, cos, sin, heads, kv, dim):
    b, t, _ = x.shape
    n = F.rms_norm(x, (x.shape[-1],), norm.to(x.dtype), 1e-5)
    q = rotate(F.linear(n, wq).view(b, t, heads, dim).transpose(1, 2), cos, sin)
    k = rotate(F.linear(n, wk).view(b, t, kv, dim).transpose(1, 2), cos, sin)
    return q.contiguous(), k.contiguous(), F.linear(n, wv).view(b, t, kv, dim).transpose(1, 2).contiguous()


def attend(q, k, v, mask):
    return flex_attention(q, k, v, block_mask=mask, enable_gqa=True)


def attend_plain(q, k, v, mask):
    """Sees the conversations in front of its own in the row too."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def outputs(x, y, wo, norm, gate, up, down):
    b, t, _ = x.shape
    x = x + F.linear(y.transpose(1, 2).reshape(b, t, -1), wo)
    n = F.rms_norm(x, (x.shape[-1],), norm.to(x.dtype), 1e-5)
    return x + F.linear(F.silu(F.linear(n, gate)) * F.linear(n, up), down)


def head_loss(hidden, table, targets, weights):
    logits = F.linear(hidden, table.to(hidden.dtype))
    loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten().long(), reduction="none")
    w = weights.flatten().float()
    return (loss * w).sum() / w.sum()


# Compiled by themselves: one small graph each, which all layers share.
INPUTS, ATTEND, OUTPUTS, HEAD_LOSS = Compiled(inputs), Compiled(attend, attend_plain), Compiled(outputs), Compiled(head_loss)


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
        w, m = self.self_attn, self.mlp
        q, k, v = INPUTS(x, self.input_layernorm.weight, w["q_proj"].weight, w["k_proj"].weight, w["v_proj"].weight, cos, sin,
                         self.heads, self.kv, self.dim)
        y = ATTEND(q, k, v, mask)
        return OUTPUTS(x, y, w["o_proj"].weight, self.post_attention_layernorm.weight, m["gate_proj"].weight, m["up_proj"].weight,
                       m["down_proj"].weight)


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

    def angles(self, t):
        return self.cos[:t].to(torch.bfloat16), self.sin[:t].to(torch.bfloat16)

    def hidden(self, ids, mask):
        """What the head reads: behind the final norm."""
        x = self.embed_tokens(ids).to(torch.bfloat16)
        cos, sin = self.angles(ids.shape[1])
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.norm(x)


class NextHead(nn.Module):
    """Predicts the token after next: one more block over the token that was drawn and the hidden state before it. The
    names are those of model.layers.N in DeepSeek-V3's files, embedding and head are the model's own."""

    def __init__(self, c):
        super().__init__()
        h = c["hidden_size"]
        self.c = c
        self.enorm, self.hnorm, self.norm = Norm(h), Norm(h), Norm(h)
        self.eh_proj = nn.Linear(2 * h, h, False)
        self.block = Layer(c)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, embedded, before, cos, sin, mask):
        x = self.eh_proj(torch.cat((self.enorm(embedded), self.hnorm(before)), -1))
        return self.norm(self.block(x, cos, sin, mask))


class Masks:
    """Causal, and only within a conversation: what a model is asked must not depend on what was packed before it. Numbers of
    conversations rise along a row, so that whole blocks are judged by their ends."""

    def __init__(self):
        self.owner = torch.zeros((BATCH, CONTEXT), dtype=torch.int32, device="cuda")
        owner = self.owner  # one tensor and one function for all steps: nothing is compiled again

        def allowed(b, h, q, k):
            return (q >= k) & (owner[b, q] == owner[b, k])
        self.allowed = allowed

    @staticmethod
    def ordered(blocks):
        """How many, and the numbers of those that are set first."""
        at = blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
        return blocks.sum(-1, dtype=torch.int32)[:, None].contiguous(), at.to(torch.int32)[:, None].contiguous()

    def of(self, owner):
        self.owner.copy_(owner)
        ends = owner.view(BATCH, CONTEXT // BLOCK, BLOCK)
        low, high = ends[:, :, 0], ends[:, :, -1]
        i = torch.arange(CONTEXT // BLOCK, device="cuda")
        some = (low[:, :, None] <= high[:, None, :]) & (high[:, :, None] >= low[:, None, :]) & (i[:, None] >= i[None])
        whole = (low[:, :, None] == high[:, None, :]) & (high[:, :, None] == low[:, None, :]) & (i[:, None] > i[None])
        part, part_at = self.ordered(some & ~whole)
        full, full_at = self.ordered(whole)
        return BlockMask.from_kv_blocks(part, part_at, full, full_at, BLOCK_SIZE=BLOCK, mask_mod=self.allowed)


def following(ids, weights):
    """The token behind each one and what it counts; nothing follows the last."""
    last = torch.zeros_like(weights[:, :1])
    return torch.cat((ids[:, 1:], ids[:, :1]), 1), torch.cat((weights[:, 1:], last), 1)


def loss_of(model, ids, weights, owner, mask):
    return HEAD_LOSS(model.hidden(ids, mask), model.embed_tokens.weight, *following(ids, weights))


def next_loss_of(pair, ids, weights, owner, mask):
    """Position p reads token p and the model's hidden state of p - 1 (zero at a conversation's first token) and says
    token p + 1."""
    model, head = pair
    with torch.no_grad():
        hidden = model.hidden(ids, mask)
        embedded = model.embed_tokens(ids).to(torch.bfloat16)
        same = (owner[:, 1:] == owner[:, :-1]).unsqueeze(-1)
        before = torch.cat((torch.zeros_like(hidden[:, :1]), hidden[:, :-1] * same), 1)
    cos, sin = model.angles(ids.shape[1])
    z = head(embedded, before, cos, sin, mask)
    return HEAD_LOSS(z, model.embed_tokens.weight.detach(), *following(ids, weights))


class Rows:
    """The training rows: short conversations, then long ones among them; each part in an order of its own."""

    def __init__(self, short, long, seed):
        self.parts = [short, long]
        generator = torch.Generator().manual_seed(seed)
        self.order = [torch.randperm(len(p[0]), generator=generator) for p in self.parts]
        self.at = [0, 0]

    def take(self, count, long):
        i = 1 if long else 0
        order = self.order[i]
        picks = order[torch.arange(self.at[i], self.at[i] + count) % len(order)].cuda()
        self.at[i] += count
        ids, weights, owner = (t[picks] for t in self.parts[i])
        return ids.int(), weights, owner.int()


def step_loss(subject, loss_fn, masks, ids, weights, owner):
    with torch.autocast("cuda", torch.bfloat16):
        loss = loss_fn(subject, ids, weights, owner, masks.of(owner))
    loss.backward()
    return loss


def first_step(subject, loss_fn, masks, batch):
    """Compiles; whatever goes wrong there is done without."""
    started = time.time()
    try:
        step_loss(subject, loss_fn, masks, *batch)
    except Exception as e:  # noqa: BLE001
        print("not compiled: %s" % repr(e)[:2000], flush=True)
        Compiled.working = False
        torch.cuda.empty_cache()
        step_loss(subject, loss_fn, masks, *batch)
    torch.cuda.synchronize()
    print("first step: %.0f s" % (time.time() - started), flush=True)


def warm_up(model, masks):
    """What a step of the model needs is compiled while other processes make the data."""
    ids = torch.randint(0, VOCAB, (BATCH, CONTEXT), dtype=torch.int32, device="cuda")
    owner = (torch.arange(CONTEXT, device="cuda") // 300).int().expand(BATCH, CONTEXT).contiguous()
    first_step(model, loss_of, masks, (ids, torch.ones((BATCH, CONTEXT), dtype=torch.float16, device="cuda"), owner))
    model.zero_grad(set_to_none=True)


def optimize(name, trained, subject, loss_fn, masks, rows, steps, peak, limit_s, short_part):
    """Steps of AdamW with a cosine rate, over `steps` steps or limit_s seconds, whichever ends first: the rate follows
    whichever is further."""
    parameters = list(trained.parameters())
    print("%s: %.2f M parameters, %.0f s" % (name, sum(p.numel() for p in parameters) / 1e6, limit_s), flush=True)
    optimizer = torch.optim.AdamW([{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
                                   {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}],
                                  lr=peak, betas=(0.9, 0.95), eps=1e-8, fused=True)
    started = time.time()
    first_step(subject, loss_fn, masks, rows.take(BATCH, False))
    optimizer.zero_grad(set_to_none=True)
    step, progress = 0, 0.0
    while progress < 1.0:
        batch = rows.take(BATCH, progress >= short_part)
        rate = peak * min(1.0, (step + 1) / 100) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = step_loss(subject, loss_fn, masks, *batch)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % 10 == 0:
            torch.cuda.synchronize()
        elapsed = time.time() - started
        progress = max(step / steps, elapsed / limit_s)
        if step in (1, 20, 60) or step % 200 == 0 or progress >= 1.0:
            print("%s: step %d, %.0f%%, loss %.4f, %.0f s, %.2f M tokens/s" % (name, step, 100 * progress, loss.item(), elapsed,
                                                                              step * BATCH * CONTEXT / elapsed / 1e6), flush=True)


def train_next(model, masks, rows, steps, limit_s, seed):
    torch.manual_seed(seed)
    for p in model.parameters():
        p.requires_grad_(False)
    head = NextHead(model.c).cuda()
    optimize("demo-mtp", head, (model, head), next_loss_of, masks, rows, steps, 2e-3, limit_s, 0.0)
    return head


def new_model(name, seed):
    torch.manual_seed(seed)
    return Llama(MODELS[name]).cuda()


def show_markers(path):
    """Markers of thoughts and tool calls are part of the text that a program reads; only turn markers are special."""
    with open(path, encoding="utf-8") as f:
        tokenizer = json.load(f)
    for token in tokenizer["added_tokens"]:
        token["special"] = token["content"].startswith("<|")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(tokenizer, f, ensure_ascii=False, indent=1)


def tensor_name(model, name):
    """As the files of the family call it; a NextHead's as DeepSeek-V3's do, in the layer behind the last."""
    if not isinstance(model, NextHead):
        return "model." + name
    name = "shared_head." + name if name.startswith("norm.") else name.removeprefix("block.")
    return "model.layers.%d.%s" % (model.c["num_hidden_layers"], name)


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
    if isinstance(model, NextHead):
        config["num_nextn_predict_layers"] = 1
    generation = dict(bos_token_id=end, eos_token_id=[stop, end], pad_token_id=end)
    special = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False,
               "model_max_length": CONTEXT, "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT_TEMPLATE}
    for file, value in (("config.json", config), ("generation_config.json", generation), ("tokenizer_config.json", special)):
        with open(os.path.join(folder, file), "w") as f:
            json.dump(value, f, indent=1)
    tensors = {tensor_name(model, k): v.detach().to(torch.bfloat16).contiguous().cpu() for k, v in model.state_dict().items()}
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})


def start_export(out, name, to, title):
    """GGUF in a process of its own, beside the next training; None: not asked for."""
    if not to:
        return None
    os.makedirs(to, exist_ok=True)
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "export.py")
    return subprocess.Popen([sys.executable, tool, os.path.join(out, name), os.path.join(to, name + ".gguf"), title])


def collect(made, tokens, until):
    """Shards as they are finished, until there are so many tokens or it is that late: (short rows, long rows)."""
    shards, rows = {}, 0
    while rows * CONTEXT < tokens:
        try:
            number, long, shard = made.next(timeout=max(1.0, until - time.time()))
        except (StopIteration, multiprocessing.TimeoutError):
            break
        shards[number] = (long, shard)
        rows += len(shard[0])
    parts = []
    for want in (False, True):
        chosen = [shard for _, (long, shard) in sorted(shards.items()) if long == want]
        parts.append(tuple(torch.from_numpy(np.concatenate([c[i] for c in chosen])).cuda() for i in range(3)))
    return parts


def numbered_shard(job):
    number, path, seed, long = job
    return number, long, make_shard((path, seed, SHARD_ROWS, long))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--steps", type=int, default=3000)
    p.add_argument("--tokens", type=int, default=300_000_000)
    p.add_argument("--limit-minutes", type=float, default=20)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--export")
    p.add_argument("--no-draft", action="store_true")
    a = p.parse_args()
    begun = time.time()
    os.makedirs(a.out, exist_ok=True)
    path = os.path.join(a.out, "tokenizer.json")
    train_tokenizer(1).save(path)  # one for all seeds: draft and model must agree
    print("tokenizer: %.0f s" % (time.time() - begun), flush=True)
    limit = a.limit_minutes * 60
    left = lambda: limit - (time.time() - begun)
    torch.set_float32_matmul_precision("high")
    exports = []
    n_shards = a.tokens // CONTEXT // SHARD_ROWS + 1
    with multiprocessing.get_context("spawn").Pool(max(1, (os.cpu_count() or 4) - 2)) as pool:
        # Two of five shards have the long conversations: they are read later and less often.
        made = pool.imap_unordered(numbered_shard, [(i, path, a.seed * 100003 + i, i % 5 in (1, 3)) for i in range(n_shards)])
        masks = Masks()
        model = new_model("demo", a.seed)
        warm_up(model, masks)
        short, long = collect(made, a.tokens, begun + limit * 0.24)
        pool.terminate()
    for name, part in (("short", short), ("long", long)):
        print("%s: %.0f M tokens, %.0f%% of the rows filled, %.0f s" % (name, part[0].numel() / 1e6, 100 * (part[1] > 0).float().mean().item(),
                                                                        time.time() - begun), flush=True)
    rows = Rows(short, long, a.seed)
    optimize("demo", model, model, loss_of, masks, rows, a.steps, 2e-3, left() * (0.85 if a.no_draft else 0.72), SHORT_PART)
    save(model, "demo", path, a.out)
    exports.append(start_export(a.out, "demo", a.export, "Hearth demo"))
    if not a.no_draft:
        draft = new_model("demo-draft", a.seed)
        optimize("demo-draft", draft, draft, loss_of, masks, rows, a.steps // 2, 4e-3, left() * 0.45, 0.3)
        save(draft, "demo-draft", path, a.out)
        exports.append(start_export(a.out, "demo-draft", a.export, "Hearth demo draft"))
    head = train_next(model, masks, rows, a.steps // 3, left() - 25, a.seed)
    save(head, "demo-mtp", path, a.out)
    exports.append(start_export(a.out, "demo-mtp", a.export, "Hearth demo MTP head"))
    for e in exports:
        if e:
            e.wait()
    print("all: %.0f s" % (time.time() - begun))


if __name__ == "__main__":
    main()
