#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tiny heads that predict further tokens for reference models of models/, with what they say.

  next.py MODELS OUT [NAME ...]

A head for the token after next (MTP) is one more block of its family behind a projection of the newest token's embedding and
the hidden state before it. transformers skips these tensors; here its own decoder layer is run with them: the block is taken
out of a model with one layer more, so that its tensors have the published names. The head of EAGLE-3 is computed here after its
published description, with transformers' attention and MLP.

OUT/<name> receives config.json, model.safetensors (the head's tensors alone, bf16), golden.json
({base, prompt, draft, hidden_std, logit_std, ...}) and, little-endian f32, hidden.f32 [prompt][hidden]: what the model gives to
the head, logits.f32 [prompt - 1][vocab]: what the head says at positions 1 to the last, behind.f32 [prompt - 1][hidden]: what it
hands on. draft: tokens that the head adds behind the prompt, each from its own hidden state.
"""
import inspect
import json
import math
import os
import random
import shutil
import sys
import tempfile
import traceback

import generate
import torch
from generate import fill, load_model, noise, st_read, st_write, versions

DRAFT = 4
MARGIN = 0.02  # of the logits' standard deviation, between the best and the second token of every drafted one

PLAIN = {"enorm": "enorm", "hnorm": "hnorm", "join": "eh_proj", "norm": "shared_head.norm"}
QWEN = {"enorm": "mtp.pre_fc_norm_embedding", "hnorm": "mtp.pre_fc_norm_hidden", "join": "mtp.fc", "norm": "mtp.norm"}


def bf16(t):
    return t.to(torch.bfloat16).float()


def rms(x, w, eps, plus_one):
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return y * (1 + w if plus_one else w)


def bigger(models, name, change):
    """A model with one layer more, random: (its tensors as they are published, the model)."""
    with open(os.path.join(models, name, "config.json")) as f:
        config = json.load(f)
    config["num_hidden_layers"] += 1
    change(config)
    tmp = tempfile.mkdtemp()
    try:
        from transformers import AutoConfig

        generate.write_config(tmp, config)
        cls = generate.causal_class(AutoConfig.from_pretrained(tmp))
        build = cls.from_config if hasattr(cls, "from_config") else cls._from_config
        model = build(AutoConfig.from_pretrained(tmp), dtype=torch.float32, attn_implementation="eager")
        keep = fill(name + "/next", model, generate.SPECS[name])
        model.to(torch.bfloat16)
        for n, t in list(model.named_buffers()) + list(model.named_parameters()):
            if n in keep:
                t.data = keep[n].to(torch.float32)
        model.save_pretrained(tmp, **generate.SPECS[name].get("save", {}))
        tensors = st_read(os.path.join(tmp, "model.safetensors"))
        return tensors, load_model(tmp)
    finally:
        shutil.rmtree(tmp)


def causal(n):
    return torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None]


def run_layer(layer, rotary, u, positions):
    """The decoder layer on rows u at these positions."""
    x, ids = u[None], torch.tensor([positions])
    axes = ids[None].expand(3, -1, -1) if hasattr(rotary, "mrope_section") else ids
    give = {"attention_mask": causal(len(positions)), "position_ids": ids, "position_embeddings": rotary(x, axes),
            "past_key_values": None, "use_cache": False, "cache_position": torch.arange(len(positions))}
    known = inspect.signature(layer.forward).parameters
    rest = any(p.kind == p.VAR_KEYWORD for p in known.values())
    y = layer(x, **{k: v for k, v in give.items() if k in known or (rest and k != "cache_position")})
    return (y[0] if isinstance(y, tuple) else y)[0]


def finish(out, name, config, tensors, doc, hidden, logits, behind):
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    generate.write_config(folder, config)
    st_write(os.path.join(folder, "model.safetensors"), tensors, {"format": "pt"})
    for file, t in (("hidden.f32", hidden), ("logits.f32", logits), ("behind.f32", behind)):
        if not torch.isfinite(t).all():
            raise ValueError(file + " is not finite")
        with open(os.path.join(folder, file), "wb") as f:
            f.write(t.detach().contiguous().numpy().astype("<f4").tobytes())
    doc.update(logit_std=float(logits.std()), hidden_std=float(behind.std()), versions=versions())
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump(doc, f)
        f.write("\n")


def with_clear_draft(name, vocab, run):
    """A prompt whose drafted tokens differ and lead clearly. run(prompt) -> (worst margin, (.., .., draft))."""
    best = None
    for seed in range(80):
        rng = random.Random("%s/next/%d" % (name, seed))
        prompt = [rng.randrange(3, vocab) for _ in range(24)]
        got = run(prompt)
        rank = (len(set(got[1][2])) >= 3, got[0])
        if best is None or rank > best[0]:
            best = (rank, prompt, seed, got[1])
        if best[0] > (True, MARGIN):
            break
    return best[0][1], *best[1:]


def say(logits):
    """(token, how far it leads in standard deviations) of the last row."""
    top = torch.topk(logits[-1], 2)
    return int(top.indices[0]), float((top.values[0] - top.values[1]) / logits.std())


def make_next(models, out, name):
    qwen = name.startswith("qwen3")
    names = QWEN if qwen else PLAIN
    base = load_model(os.path.join(models, name))
    inner, c = base.model, base.config
    n, eps, last = c.hidden_size, c.rms_norm_eps, c.num_hidden_layers

    def change(config):
        if qwen:
            kinds = config.get("layer_types") or [
                "full_attention" if (i + 1) % config.get("full_attention_interval", 4) == 0 else "linear_attention" for i in range(last)]
            config["layer_types"] = kinds + ["full_attention"]

    published, wide = bigger(models, name, change)
    layer = wide.model.layers[last]
    old = ".layers.%d." % last
    tensors = {("mtp.layers.0." if qwen else "model.layers.%d." % last) + k.split(old)[1]: v for k, v in published.items() if old in k}
    prefix = "" if qwen else "model.layers.%d." % last
    w = {}
    for part, shape in (("enorm", (n,)), ("hnorm", (n,)), ("norm", (n,)), ("join", (n, 2 * n))):
        r = noise(name + "/next", part, shape)
        value = r / math.sqrt(2 * n) if part == "join" else (0.0 if qwen else 1.0) + 0.25 * r
        tensors[prefix + names[part] + ".weight"] = value.to(torch.bfloat16)
        w[part] = bf16(value)

    def head(rows, count):
        x = run_layer(layer, inner.rotary_emb, torch.stack(rows), list(range(1, count + 1)))
        z = rms(x, w["norm"], eps, qwen)
        return z, base.lm_head(z)

    def row(token, before):
        e = inner.embed_tokens(torch.tensor(token))
        return torch.cat((rms(e, w["enorm"], eps, qwen), rms(before, w["hnorm"], eps, qwen))) @ w["join"].T

    def run(prompt):
        with torch.no_grad():
            hidden = inner(input_ids=torch.tensor([prompt]), use_cache=False).last_hidden_state[0]
            rows = [row(prompt[p], hidden[p - 1]) for p in range(1, len(prompt))]
            z, logits = head(rows, len(rows))
            first, worst, draft = (z, logits), float("inf"), []
            while len(draft) < DRAFT:
                token, lead = say(logits)
                worst = min(worst, lead)
                draft.append(token)
                rows.append(row(token, z[-1]))
                z, logits = head(rows, len(rows))
        return worst, (hidden, first, draft)

    worst, prompt, seed, (hidden, (z, logits), draft) = with_clear_draft(name, c.vocab_size, run)
    with open(os.path.join(models, name, "config.json")) as f:
        config = json.load(f)
    config["mtp_num_hidden_layers" if qwen else "num_nextn_predict_layers"] = 1
    finish(out, name, config, tensors, {"base": name, "kind": "mtp", "prompt": prompt, "draft": draft, "min_margin": worst, "seed": seed},
           hidden, logits, z)
    return {"margin": worst, "draft": draft, "tensors": len(tensors)}


def make_eagle(models, out, name):
    """EAGLE-3: three inner states of the model become one row; the block reads [embedding; row], both normed."""
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP

    base = load_model(os.path.join(models, "llama"))
    inner, c = base.model, base.config
    n, eps, words, layers = c.hidden_size, c.rms_norm_eps, 160, [0, 1, 2]
    attn, mlp = LlamaAttention(c, 0).eval(), LlamaMLP(c).eval()
    for k in ("q_proj", "k_proj", "v_proj"):
        old = getattr(attn, k)
        setattr(attn, k, torch.nn.Linear(2 * n, old.out_features, bias=old.bias is not None))
    tensors, w = {}, {}

    def put(key, shape, scale, around=0.0):
        value = (around + scale * noise(name, key, shape)).to(torch.bfloat16)
        tensors[key] = value
        w[key] = value.float()
        return w[key]

    with torch.no_grad():
        for part, module in (("self_attn", attn), ("mlp", mlp)):
            for k, p in module.named_parameters():
                p.copy_(put("midlayer.%s.%s" % (part, k), tuple(p.shape), 1.2 / math.sqrt(p.shape[-1]) if p.dim() == 2 else 0.1))
    for k in ("midlayer.input_layernorm", "midlayer.hidden_norm", "midlayer.post_attention_layernorm", "norm"):
        put(k + ".weight", (n,), 0.25, 1.0)
    put("fc.weight", (n, 3 * n), 1 / math.sqrt(3 * n))
    put("lm_head.weight", (words, n), 1.6 / math.sqrt(n))
    rng = random.Random("eagle")
    ids = sorted(rng.sample(range(c.vocab_size), words))
    generate.ST_TYPES[torch.int64], generate.ST_TYPES[torch.bool] = "I64", "BOOL"
    tensors["d2t"] = torch.tensor([t - i for i, t in enumerate(ids)], dtype=torch.int64)
    known = torch.zeros(c.vocab_size, dtype=torch.bool)
    known[ids] = True
    tensors["t2d"] = known

    def block(tokens, rows, count):
        e = inner.embed_tokens(torch.tensor(tokens))
        g = torch.stack(rows)
        x = torch.cat((rms(e, w["midlayer.input_layernorm.weight"], eps, False), rms(g, w["midlayer.hidden_norm.weight"], eps, False)), -1)[None]
        where = torch.arange(count)[None]
        a = attn(hidden_states=x, position_embeddings=inner.rotary_emb(x, where), attention_mask=causal(count), past_key_values=None)[0][0]
        h = g + a
        h = h + mlp(rms(h, w["midlayer.post_attention_layernorm.weight"], eps, False))
        return h, rms(h, w["norm.weight"], eps, False) @ w["lm_head.weight"].T

    def run(prompt):
        with torch.no_grad():
            got = inner(input_ids=torch.tensor([prompt]), use_cache=False, output_hidden_states=True)
            taps = torch.cat([got.hidden_states[i][0] for i in layers], -1)
            g = list((taps @ w["fc.weight"].T)[:-1])
            tokens = prompt[1:]
            h, logits = block(tokens, g, len(g))
            first, worst, draft = (h, logits), float("inf"), []
            while len(draft) < DRAFT:
                at, lead = say(logits)
                worst = min(worst, lead)
                draft.append(ids[at])
                tokens, g = tokens + [ids[at]], g + [h[-1]]
                h, logits = block(tokens, g, len(g))
        return worst, (taps, first, draft)

    worst, prompt, seed, (taps, (h, logits), draft) = with_clear_draft(name, c.vocab_size, run)
    config = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": n, "num_hidden_layers": 1,
              "num_attention_heads": c.num_attention_heads, "num_key_value_heads": c.num_key_value_heads,
              "head_dim": getattr(c, "head_dim", n // c.num_attention_heads), "intermediate_size": c.intermediate_size,
              "rms_norm_eps": eps, "vocab_size": c.vocab_size, "draft_vocab_size": words, "hidden_act": "silu",
              "max_position_embeddings": c.max_position_embeddings, "tie_word_embeddings": False,
              "rope_theta": (getattr(c, "rope_parameters", None) or {}).get("rope_theta", 10000.0),
              "eagle_config": {"eagle_aux_hidden_state_layer_ids": layers}, "torch_dtype": "bfloat16"}
    finish(out, name, config, tensors, {"base": "llama", "kind": "eagle3", "prompt": prompt, "draft": draft, "min_margin": worst, "seed": seed},
           taps, logits, h)
    return {"margin": worst, "draft": draft, "tensors": len(tensors)}


MAKE = {n: make_next for n in ("deepseek_v3", "glm4_moe", "glm4_moe_lite", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "llama")}
MAKE["eagle3"] = make_eagle


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    models, out = sys.argv[1], sys.argv[2]
    os.makedirs(out, exist_ok=True)
    torch.set_num_threads(1)
    for name in sys.argv[3:] or MAKE:
        try:
            print("ok  ", name, MAKE[name](models, out, name), flush=True)
        except Exception:
            print("FAIL", name, flush=True)
            traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
