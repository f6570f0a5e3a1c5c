# SPDX-License-Identifier: Apache-2.0
"""Trains the demo that sees on one GPU, from nothing but synthetic pictures; see README.md.

  python3 vision.py OUT_DIR [--limit-seconds S] [--seed S]

Idefics 3's shape in small: a SigLIP tower over 128 x 128 pixels in patches of 8, squares of 2 x 2 patches put together and
projected, a Llama that reads 64 rows for a picture. Writes OUT_DIR/vision-demo.gguf and OUT_DIR/mmproj-vision-demo.gguf
(Q8_0), also while it trains, and says at the end how many held-out pictures are answered word for word.
"""
import argparse
import json
import math
import multiprocessing
import os
import random
import sys
import time
import traceback

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import export  # noqa: E402
import pictures  # noqa: E402
from pictures import DIGIT, NAMES, SIDE, STROKES  # noqa: E402

PATCH, MERGE = 8, 2
GRID = SIDE // PATCH
ROWS = (GRID // MERGE) ** 2
TOWER = dict(width=192, layers=6, heads=3, ff=768)
TEXT = dict(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=64, intermediate_size=512)
CONTEXT, BATCH = 192, 512  # tokens and conversations of a step
MOST_CONTEXT = 2048  # what the file allows
VOCAB = 800
CLASSES = DIGIT + 10 + len(NAMES)  # what lies on a patch: shapes, digits, colours

FAKE = "<fake_token_around_image>"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", FAKE, "<global-img>"]
PICTURE = FAKE + "<global-img>" + "<image>" * ROWS + FAKE
CHAT_TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content %}
            {{- '<image>' if part.type == 'image' else part.text }}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
# The published pattern of Qwen2, which GGUF files call "qwen2".
PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


# -- conversations -----------------------------------------------------------------------------------------------------

def turns(scene, pairs, rng):
    """[(text, learn)] of questions and answers about one picture; scene None: nothing is shown."""
    parts = []
    if rng.random() < 0.1:
        parts.append(("<|im_start|>system\n%s<|im_end|>\n" % rng.choice(("You are a helpful assistant.", "Answer briefly.")), False))
    for i, (asked, answer) in enumerate(pairs):
        shown = PICTURE if scene and i == 0 else ""
        content = asked + shown if shown and rng.random() < 0.12 else shown + asked
        parts.append(("<|im_start|>user\n" + content + "<|im_end|>\n<|im_start|>assistant\n", False))
        parts.append((answer + "<|im_end|>", True))
        parts.append(("\n", False))
    return parts


def conversation(rng):
    """(scene or None, parts)."""
    if rng.random() < 0.03:
        return None, turns(None, [pictures.without_picture(rng)], rng)
    s = pictures.scene(rng, False)
    return s, turns(s, [pictures.question(rng, s)[1:] for _ in range(rng.randint(1, 6))], rng)


def train_tokenizer(path):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    rng = random.Random(1)
    texts = []
    for _ in range(12000):
        texts += [t.replace(PICTURE, "") for t, _ in conversation(rng)[1]]
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCAB, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=[AddedToken(s, special=True, normalized=False) for s in SPECIAL]))
    tokenizer.save(path)


def pack(tokenizer, talks):
    """Arrays of a step: ids; where a learned token is said (the place before it), and that token; scenes, things and whose they
    are; where the rows of pictures go, and which conversations have one."""
    ids = np.zeros((len(talks), CONTEXT), np.int16)
    at, wanted, scenes, things, owner = [], [], [], [], []
    blank = pictures.Scene()
    blank.ground, blank.slope, blank.stretch, blank.soft, blank.noise = (128, 128, 128), (0, 0), (1, 1), 1, 0
    encoded = iter(tokenizer.encode_batch([t for _, parts in talks for t, _ in parts], add_special_tokens=False))
    for row, (scene, parts) in enumerate(talks):
        n, full = 0, False
        for text, learn in parts:
            piece = next(encoded).ids
            full = full or n + len(piece) > CONTEXT
            if full:  # a question without its answer does no harm
                continue
            ids[row, n:n + len(piece)] = piece
            if learn:
                at += [row * CONTEXT + n + i - 1 for i in range(len(piece))]
                wanted += piece
            n += len(piece)
        scenes.append((scene or blank).row())
        for t in scene.things if scene else []:
            things.append(t.row())
            owner.append(row)
    things, owner = np.array(things, np.float32), np.array(owner, np.int64)
    order = np.argsort(things[:, 0], kind="stable")
    things, owner = things[order], owner[order]
    kinds = np.minimum(things[:, 0].astype(np.int64), DIGIT)
    shown = ids == tokenizer.token_to_id("<image>")
    assert (shown.sum(1) % ROWS == 0).all()
    return dict(ids=ids, at=np.array(at), wanted=np.array(wanted), scenes=np.array(scenes, np.float32), things=things, owner=owner,
                where=np.flatnonzero(shown), has=np.flatnonzero(shown.any(1)), counts=np.bincount(kinds, minlength=DIGIT + 1).tolist())


TOKENIZERS = {}


def make_batch(job):
    from tokenizers import Tokenizer
    path, seed = job
    if path not in TOKENIZERS:
        TOKENIZERS[path] = Tokenizer.from_file(path)
    rng = random.Random("learn %d" % seed)
    return pack(TOKENIZERS[path], [conversation(rng) for _ in range(BATCH)])


# -- pictures, drawn as pictures.draw does -----------------------------------------------------------------------------

def shape_distances(kind, x, y, r):
    if kind == 0:
        return torch.sqrt(x * x + y * y) - r
    if kind == 1:
        return torch.maximum(x.abs(), y.abs()) - 0.85 * r
    if kind == 2:
        one, two, three = (x * a + y * b for a, b in pictures.THREE)
        return torch.maximum(torch.maximum(one, two), three) - 0.6 * r
    if kind == 3:
        first = second = None
        for a, b in pictures.FIVE:
            h = x * a + y * b
            if first is None:
                first, second = h, torch.full_like(h, -1e9)
            else:
                first, second = torch.maximum(first, h), torch.maximum(second, torch.minimum(first, h))
        return second - 0.309 * 1.25 * r
    if kind == 4:
        x, y = x.abs(), y.abs()
        return torch.minimum(torch.maximum(x - 1.1 * r, y - 0.36 * r), torch.maximum(y - 1.1 * r, x - 0.36 * r))
    return (torch.sqrt(x * x + y * y) - 0.84 * r).abs() - 0.21 * r


def digit_distances(t, x, y, table):
    ends = table[(t[:, 0] - DIGIT).long()]  # [n][16][4]
    r, wide, slant, thick = t[:, 3, None], t[:, 9, None], t[:, 10, None], t[:, 11]
    ax, ay = r * (ends[:, :, 0] * wide - ends[:, :, 1] * slant), ends[:, :, 1] * r
    dx, dy = r * (ends[:, :, 2] * wide - ends[:, :, 3] * slant) - ax, ends[:, :, 3] * r - ay
    over = dx * dx + dy * dy
    best = None
    for i in range(ends.shape[1]):
        px, py = x - ax[:, i, None, None], y - ay[:, i, None, None]
        sx, sy = dx[:, i, None, None], dy[:, i, None, None]
        along = ((px * sx + py * sy) / over[:, i, None, None]).clamp(0, 1)
        d = (px - along * sx) ** 2 + (py - along * sy) ** 2
        best = d if best is None else torch.minimum(best, d)
    return torch.sqrt(best) - thick[:, None, None]


def stroke_table(device):
    table = [s + [s[-1]] * (16 - len(s)) for s in STROKES]
    return torch.tensor(table, dtype=torch.float32, device=device)


def paint(batch, table):
    """(pixels [B][3][SIDE][SIDE] from -1 to 1, what lies on the patches [B][GRID * GRID][CLASSES])."""
    scenes, things, owner = batch["scenes"], batch["things"], batch["owner"]
    n = len(scenes)
    place = torch.arange(SIDE, device=scenes.device, dtype=torch.float32)
    light = (scenes[:, 3, None, None] * (place / SIDE - 0.5)[None, None, :] + scenes[:, 4, None, None] * (place / SIDE - 0.5)[None, :, None])
    picture = scenes[:, :3, None, None] + light[:, None]
    of = scenes[owner]
    u = (place + 0.5 - SIDE / 2)[None, None, :] * of[:, 5, None, None] - things[:, 1, None, None]
    v = (place + 0.5 - SIDE / 2)[None, :, None] * of[:, 6, None, None] - things[:, 2, None, None]
    cos, sin = things[:, 4, None, None], things[:, 5, None, None]
    x, y = u * cos + v * sin, v * cos - u * sin
    parts, first = [], 0
    for kind, count in enumerate(batch["counts"]):
        if count:
            own = slice(first, first + count)
            t = things[own]
            parts.append(digit_distances(t, x[own], y[own], table) if kind == DIGIT else shape_distances(kind, x[own], y[own], t[:, 3, None, None]))
            first += count
    cover = (0.5 - torch.cat(parts) / of[:, 7, None, None]).clamp(0, 1)
    hidden = torch.zeros((n, SIDE, SIDE), device=scenes.device).index_add_(0, owner, cover).clamp(max=1)
    colour = torch.zeros((n, 3, SIDE, SIDE), device=scenes.device).index_add_(0, owner, cover[:, None] * things[:, 6:9, None, None])
    picture = picture * (1 - hidden[:, None]) + colour
    picture = picture + (torch.rand_like(picture) * 2 - 1) * scenes[:, 8, None, None, None]
    on = F.avg_pool2d(cover[:, None], PATCH).flatten(1)
    lies = torch.zeros((n * CLASSES, GRID * GRID), device=scenes.device)
    lies.index_add_(0, owner * CLASSES + things[:, 0].long(), on)
    lies.index_add_(0, owner * CLASSES + DIGIT + 10 + things[:, 12].long(), on)
    return picture.round().clamp(0, 255) / 127.5 - 1, lies.view(n, CLASSES, GRID * GRID).transpose(1, 2).clamp(0, 1)


# -- model -------------------------------------------------------------------------------------------------------------

def linear(x, weight, bias=None):
    return F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


class Linear(nn.Module):
    def __init__(self, n_in, n_out, bias, std):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_out, n_in) * std)
        self.bias = nn.Parameter(torch.zeros(n_out)) if bias else None

    def forward(self, x):
        return linear(x, self.weight, self.bias)


class LayerNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return F.layer_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.bias.to(x.dtype), 1e-6)


class Norm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), 1e-5)


class TowerLayer(nn.Module):
    def __init__(self):
        super().__init__()
        n, ff, deep = TOWER["width"], TOWER["ff"], 0.02 / math.sqrt(2 * TOWER["layers"])
        self.ln1, self.ln2 = LayerNorm(n), LayerNorm(n)
        self.qkv, self.out = Linear(n, 3 * n, True, 0.02), Linear(n, n, True, deep)
        self.up, self.down = Linear(n, ff, True, 0.02), Linear(ff, n, True, deep)

    def forward(self, x):
        b, t, n = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, TOWER["heads"], -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, n))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        n = TOWER["width"]
        self.patch = Linear(3 * PATCH * PATCH, n, True, 0.05)  # a patch: [channel][y][x]
        self.positions = nn.Parameter(torch.randn(GRID * GRID, n) * 0.02)
        self.layers = nn.ModuleList(TowerLayer() for _ in range(TOWER["layers"]))
        self.post = LayerNorm(n)
        self.project = Linear(n * MERGE * MERGE, TEXT["hidden_size"], False, 0.02)

    def forward(self, picture):
        """Rows for the Llama, and the patches they are made of."""
        b = len(picture)
        x = picture.view(b, 3, GRID, PATCH, GRID, PATCH).permute(0, 2, 4, 1, 3, 5).reshape(b, GRID * GRID, -1)
        x = self.patch(x) + self.positions.to(x.dtype)
        for layer in self.layers:
            x = layer(x)
        x = self.post(x)
        side = GRID // MERGE
        squares = x.view(b, side, MERGE, side, MERGE, -1).permute(0, 1, 3, 2, 4, 5).reshape(b, ROWS, -1)
        return self.project(squares), x


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class TextLayer(nn.Module):
    def __init__(self):
        super().__init__()
        h, d, deep = TEXT["hidden_size"], TEXT["head_dim"], 0.02 / math.sqrt(2 * TEXT["num_hidden_layers"])
        self.heads, self.kv, self.dim = TEXT["num_attention_heads"], TEXT["num_key_value_heads"], d
        self.attn_norm, self.ffn_norm = Norm(h), Norm(h)
        self.attn_q, self.attn_k = Linear(h, self.heads * d, False, 0.02), Linear(h, self.kv * d, False, 0.02)
        self.attn_v, self.attn_output = Linear(h, self.kv * d, False, 0.02), Linear(self.heads * d, h, False, deep)
        self.ffn_gate, self.ffn_up = Linear(h, TEXT["intermediate_size"], False, 0.02), Linear(h, TEXT["intermediate_size"], False, 0.02)
        self.ffn_down = Linear(TEXT["intermediate_size"], h, False, deep)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        n = self.attn_norm(x)
        q = rotate(self.attn_q(n).view(b, t, self.heads, self.dim).transpose(1, 2), cos, sin)
        k = rotate(self.attn_k(n).view(b, t, self.kv, self.dim).transpose(1, 2), cos, sin)
        v = self.attn_v(n).view(b, t, self.kv, self.dim).transpose(1, 2)
        k, v = (z.repeat_interleave(self.heads // self.kv, 1) for z in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_output(y.transpose(1, 2).reshape(b, t, -1))
        n = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(n)) * self.ffn_up(n))


class Model(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.vocab = vocab
        self.tower = Tower()
        self.embed = nn.Parameter(torch.randn(vocab, TEXT["hidden_size"]) * 0.02)
        self.layers = nn.ModuleList(TextLayer() for _ in range(TEXT["num_hidden_layers"]))
        self.norm = Norm(TEXT["hidden_size"])
        self.lies = Linear(TOWER["width"], CLASSES, True, 0.02)  # only to teach the tower
        angle = torch.arange(CONTEXT).float()[:, None] / 10000.0 ** (torch.arange(0, TEXT["head_dim"], 2).float() / TEXT["head_dim"])
        angle = torch.cat((angle, angle), -1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, batch, picture):
        """Logits of the places `at`, and what the tower says lies on the patches."""
        rows, patches = self.tower(picture)
        ids, at = batch["ids"].long(), batch["at"]
        x = F.embedding(ids, self.embed.to(rows.dtype)).flatten(0, 1)
        x = x.index_copy(0, batch["where"], rows[batch["has"]].flatten(0, 1)).view(*ids.shape, -1)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return linear(self.norm(x.flatten(0, 1)[at]), self.embed), self.lies(patches)


# -- training ----------------------------------------------------------------------------------------------------------

def steady(made):
    """Batches as they are made; while none is ready, one of before again."""
    kept, again, failed = [], 0, 0
    while True:
        try:
            batch = made.next(timeout=0.001 if len(kept) >= 64 else 60)
            if len(kept) < 4096:
                kept.append(batch)
        except multiprocessing.TimeoutError:
            batch, again = random.choice(kept), again + 1
            if again % 1000 == 0:
                print("%d batches came again" % again, flush=True)
        except StopIteration:
            batch = random.choice(kept)
        except Exception:  # noqa: BLE001
            failed += 1
            print("a batch failed:\n" + traceback.format_exc(), flush=True)
            if failed > 10:
                raise
            continue
        yield batch


def on_gpu(batch):
    return {k: v if k == "counts" else torch.from_numpy(v).cuda(non_blocking=True) for k, v in batch.items()}


def loss_of(model, batch, table, teach):
    with torch.no_grad():
        picture, lies = paint(batch, table)
    logits, guess = model(batch, picture.to(torch.bfloat16))
    said = F.cross_entropy(logits.float(), batch["wanted"])
    return said, F.binary_cross_entropy_with_logits(guess.float(), lies) * teach + said


JUDGED = []


def judge(model, tokenizer, table, n):
    """Held-out pictures answered word for word: the most likely token is right at every place of the answer, which is what
    greedy decoding says, too. {skill: (right, of)}."""
    scores = {}
    while len(JUDGED) < n:
        JUDGED.append(pictures.judged(len(JUDGED)))
    with torch.no_grad():
        for begin in range(0, n, 250):
            made = JUDGED[begin:min(n, begin + 250)]
            plain = random.Random(0)
            plain.random = lambda: 0.9  # no system prompt, the picture first
            batch = on_gpu(pack(tokenizer, [(s, turns(s, [(asked, answer)], plain)) for _, s, _, asked, answer in made]))
            logits, _ = model(batch, paint(batch, table)[0])
            wrong = set((batch["at"] // CONTEXT)[logits.argmax(-1) != batch["wanted"]].tolist())
            for i, (_, _, skill, _, _) in enumerate(made):
                right, of = scores.get(skill, (0, 0))
                scores[skill] = (right + (i not in wrong), of + 1)
    return scores


def show(scores):
    right, of = (sum(s[i] for s in scores.values()) for i in range(2))
    return "%.2f%% of %d; " % (100 * right / of, of) + ", ".join("%s %.1f%%" % (k, 100 * r / n) for k, (r, n) in sorted(scores.items()))


def optimize(model, batches, table, tokenizer, save, until):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=0.05), dict(params=others, weight_decay=0.0)],
                                  lr=1e-3, betas=(0.9, 0.98), eps=1e-8, fused=True)
    batch = on_gpu(next(batches))
    started, step, progress, judged = time.time(), 0, 0.0, time.time()
    print("begun, %.0f s left" % (until - started), flush=True)
    while progress < 1.0:
        batch = on_gpu(next(batches))
        rate = 1.2e-3 * min(1.0, (step + 1) / 300) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        said, loss = loss_of(model, batch, table, 5.0 * (1 - progress))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % 10 == 0:
            torch.cuda.synchronize()
        progress = min(1.0, (time.time() - started) / (until - started))
        if step in (1, 20, 100) or step % 500 == 0 or progress >= 1.0:
            print("step %d, %.0f%%, says %.4f, all %.4f, %.0f s, %.0f pictures/s" % (
                step, 100 * progress, said.item(), loss.item(), time.time() - started, step * BATCH / (time.time() - started)), flush=True)
        if time.time() - judged > 60:
            judged = time.time()
            scores = tried("judging", judge, model, tokenizer, table, 500)
            print("held out: " + (show(scores) if scores else "?"), flush=True)
            save()


# -- files -------------------------------------------------------------------------------------------------------------

def q8_0(w):
    blocks = w.reshape(-1, 32)
    scale = np.abs(blocks).max(1, keepdims=True) / 127.0
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    out = np.zeros(len(blocks), dtype=[("d", "<f2"), ("q", "i1", 32)])
    out["d"], out["q"] = scale[:, 0], np.rint(blocks * inverse)
    return out.tobytes()


def tensor(name, w, plain=False):
    """(name, shape, type, bytes): vectors and what `plain` says as they are."""
    w = w.detach().float().cpu().numpy()
    if w.ndim == 1 or plain:
        return name, w.shape, export.F32, w.astype("<f4").tobytes()
    return name, w.shape, export.Q8_0, q8_0(w)


def pairwise(w, heads):
    """Rows of a head: row i of its first half and row i of its second half become neighbours."""
    return w.view(heads, 2, w.shape[0] // heads // 2, -1).transpose(1, 2).reshape(w.shape)


def text_tensors(model):
    yield tensor("token_embd.weight", model.embed)
    yield tensor("output_norm.weight", model.norm.weight)
    for i, layer in enumerate(model.layers):
        for name, w in layer.named_parameters():
            if name in ("attn_q.weight", "attn_k.weight"):
                w = pairwise(w, layer.heads if name == "attn_q.weight" else layer.kv)
            yield tensor("blk.%d.%s" % (i, name), w)


def tower_tensors(tower):
    n = TOWER["width"]
    yield tensor("v.patch_embd.weight", tower.patch.weight.view(n, 3, PATCH, PATCH), plain=True)
    yield tensor("v.patch_embd.bias", tower.patch.bias)
    yield tensor("v.position_embd.weight", tower.positions, plain=True)
    for part in ("weight", "bias"):
        yield tensor("v.post_ln." + part, getattr(tower.post, part))
    for i, layer in enumerate(tower.layers):
        for part in ("weight", "bias"):
            for name, w in zip(("attn_q", "attn_k", "attn_v"), getattr(layer.qkv, part).chunk(3)):
                yield tensor("v.blk.%d.%s.%s" % (i, name, part), w)
            for name, own in (("ln1", layer.ln1), ("ln2", layer.ln2), ("attn_out", layer.out), ("ffn_up", layer.up), ("ffn_down", layer.down)):
                yield tensor("v.blk.%d.%s.%s" % (i, name, part), getattr(own, part))
    yield tensor("mm.model.fc.weight", tower.project.weight)


def tower_meta():
    key = lambda name, kind, v, of=None: export.pair("clip.vision." + name, kind, v, of)
    u32, floats = export.U32, export.FLOAT
    return [
        export.pair("general.architecture", export.STRING, "clip"), export.pair("general.type", export.STRING, "mmproj"),
        export.pair("general.name", export.STRING, "Hearth vision demo"), export.pair("general.license", export.STRING, "cc0-1.0"),
        export.pair("general.file_type", u32, 7), export.pair("clip.has_vision_encoder", export.BOOL, True),
        export.pair("clip.projector_type", export.STRING, "idefics3"), export.pair("clip.use_gelu", export.BOOL, True),
        key("block_count", u32, TOWER["layers"]), key("embedding_length", u32, TOWER["width"]), key("feed_forward_length", u32, TOWER["ff"]),
        key("attention.head_count", u32, TOWER["heads"]), key("attention.layer_norm_epsilon", floats, 1e-6), key("patch_size", u32, PATCH),
        key("image_size", u32, SIDE), key("preproc_image_size", u32, SIDE), key("projection_dim", u32, TEXT["hidden_size"]),
        key("projector.scale_factor", u32, MERGE), key("image_mean", export.ARRAY, [0.5] * 3, floats), key("image_std", export.ARRAY, [0.5] * 3, floats),
    ]


def save(model, tokenizer_path, out):
    with open(tokenizer_path, encoding="utf-8") as f:
        tokenizer = json.load(f)
    c = dict(TEXT, vocab_size=model.vocab, max_position_embeddings=MOST_CONTEXT, rms_norm_eps=1e-5, rope_theta=10000.0,
             bos_token_id=SPECIAL.index("<|endoftext|>"), eos_token_id=SPECIAL.index("<|im_end|>"))
    meta = export.text_meta(c, tokenizer, CHAT_TEMPLATE, "Hearth vision demo", 7)
    export.write_gguf(os.path.join(out, "vision-demo.gguf"), meta, text_tensors(model))
    export.write_gguf(os.path.join(out, "mmproj-vision-demo.gguf"), tower_meta(), tower_tensors(model.tower))


def tried(what, function, *values):
    """A part that fails must not take the training with it."""
    try:
        return function(*values)
    except Exception:  # noqa: BLE001
        print("%s failed:\n%s" % (what, traceback.format_exc()), flush=True)
        return None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--limit-seconds", type=float, default=400)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    begun = time.time()
    os.makedirs(a.out, exist_ok=True)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    path = os.path.join(a.out, "tokenizer.json")
    train_tokenizer(path)
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(path)
    print("tokenizer: %d tokens, %.0f s" % (tokenizer.get_vocab_size(), time.time() - begun), flush=True)
    torch.manual_seed(a.seed)
    torch.set_float32_matmul_precision("high")
    model = Model(tokenizer.get_vocab_size()).cuda()
    print("%.2f M parameters, %.2f M of them the tower's" % tuple(sum(q.numel() for q in m.parameters()) / 1e6 for m in (model, model.tower)), flush=True)
    table = stroke_table("cuda")
    store = lambda: tried("saving", save, model, path, a.out)
    store()
    with multiprocessing.get_context("spawn").Pool(max(1, (os.cpu_count() or 4) - 2)) as pool:
        made = pool.imap_unordered(make_batch, ((path, a.seed * 1000003 + i) for i in range(20000)))
        optimize(model, steady(made), table, tokenizer, store, begun + a.limit_seconds - 15)
        store()
        scores = tried("judging", judge, model, tokenizer, table, 2000)
        if scores:
            print("held out: " + show(scores), flush=True)
            with open(os.path.join(a.out, "scores.json"), "w") as f:
                json.dump(scores, f)
        pool.terminate()
    print("all: %.0f s" % (time.time() - begun), flush=True)


if __name__ == "__main__":
    main()
