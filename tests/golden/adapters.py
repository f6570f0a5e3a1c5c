#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes small adapters for the reference models, with the logits that PEFT computes for them.

  adapters.py MODELS OUT [NAME ...]

MODELS is the folder of reference models (generate.py made them). For every case OUT/NAME receives
  adapter_config.json, adapter_model.safetensors   as PEFT saves them; values are exact in bf16, most files hold bf16
  golden.json                                      {base, prompt, logit_std, moved, scale, with, versions}
  logits.f32                                       float32 [24][vocab]: base and adapter in float32, eager, no cache
A case with "with" has no files of its own: the named adapters stand on the base together. moved says how far the
adapter moves the base's logits, in standard deviations: far more than the bound that a check has.
"""

import json
import os
import shutil
import sys
import tempfile
import traceback

import generate as g
import torch

ROWS = 24
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def lora(base, targets, r=4, alpha=8, plain=False, **kw):
    return {"base": base, "kind": "lora", "plain": plain,
            "config": {"r": r, "lora_alpha": alpha, "target_modules": targets, "lora_dropout": 0.0, **kw}}


def ia3(base, targets, ff, **kw):
    return {"base": base, "kind": "ia3", "plain": False,
            "config": {"target_modules": targets, "feedforward_modules": ff, **kw}}


CASES = {
    "llama_lora": lora("llama", ALL, plain=True),
    "llama_rslora": lora("llama", ["q_proj", "v_proj", "down_proj"], r=8, alpha=4, use_rslora=True,
                         rank_pattern={"q_proj": 2}, alpha_pattern={"layers.1.self_attn.v_proj": 9}),
    "llama_pattern": lora("llama", ["k_proj", "up_proj"], r=3, alpha=3, rank_pattern={r"layers\.[02]\..*up_proj": 5},
                          alpha_pattern={"up_proj": 10}, layers_to_transform=[0, 2]),
    "llama_dora": lora("llama", ["q_proj", "o_proj", "up_proj", "down_proj"], use_dora=True),
    "llama_ia3": ia3("llama", ["k_proj", "v_proj", "down_proj"], ["down_proj"]),
    "llama_ends": lora("llama", ["embed_tokens", "lm_head"], r=4, alpha=6),
    "llama_alora": lora("llama", ["q_proj", "k_proj", "v_proj"], r=8, alpha=16, alora_invocation_tokens=[17, 4]),
    "llama_yarn_dora": lora("llama_yarn", ["q_proj", "v_proj", "o_proj", "down_proj"], use_dora=True),
    "llama_yarn_ia3": ia3("llama_yarn", ["k_proj", "v_proj", "o_proj", "down_proj"], ["down_proj"]),
    "qwen3_lora": lora("qwen3", ALL + ["embed_tokens"], r=4, alpha=4),
    "qwen3_ia3": ia3("qwen3", ["k_proj", "v_proj", "up_proj", "down_proj"], ["up_proj", "down_proj"]),
    "gemma3_lora": lora("gemma3_text", ALL + ["embed_tokens"], r=4, alpha=4),
    "gemma3_dora": lora("gemma3_text", ["q_proj", "o_proj", "gate_proj"], use_dora=True, use_rslora=True),
    "qwen3_moe_params": lora("qwen3_moe", ["q_proj", "v_proj"], r=2, alpha=4,
                             target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]),
    "gpt2_lora": lora("gpt2", ["c_attn", "c_proj", "c_fc"], r=4, alpha=8, fan_in_fan_out=True),
    "phi3_lora": lora("phi3", ["qkv_proj", "o_proj", "gate_up_proj"], r=4, alpha=8),
    "llama_two": {"base": "llama", "with": [["llama_lora", 1.0], ["llama_rslora", 1.0]]},
    "llama_two_dora": {"base": "llama", "with": [["llama_dora", 1.0], ["llama_rslora", 0.5]]},
    "llama_scaled_dora": {"base": "llama", "with": [["llama_dora", 0.5]]},
}


def fill(case, model):
    """Every tensor of the adapter random, in a size that matters, exact in bf16."""
    for name, p in model.named_parameters():
        if "lora_" not in name and "ia3_" not in name:
            continue
        x = g.noise(case, name, tuple(p.shape))
        if "ia3_" in name:
            x = 1 + 0.3 * x
        elif "magnitude" in name:
            x = p.data * (1 + 0.15 * x)
        elif "lora_embedding_A" in name:
            x = 0.4 * x
        elif "lora_A" in name:
            x = x * 1.5 / p.shape[-1] ** 0.5
        else:
            x = 0.25 * x
        p.data = x.to(torch.bfloat16).to(torch.float32)


def peft_config(spec):
    import peft

    cls = {"lora": peft.LoraConfig, "ia3": peft.IA3Config}[spec["kind"]]
    return cls(task_type="CAUSAL_LM", **spec["config"])


def base_logits(path, prompt):
    return g.forward_of(g.load_model(path))(prompt)


def store(name, spec, logits, plain, prompt, outdir):
    import peft

    std = float(plain.std())
    moved = float((logits - plain).abs().max()) / std
    doc = {"base": spec["base"], "prompt": prompt, "vocab": int(logits.shape[-1]), "logit_std": std, "moved": moved,
           "with": spec.get("with", [[name, 1.0]]), "versions": {**g.versions(), "peft": peft.__version__}}
    if not torch.isfinite(logits).all() or moved < 0.05:
        raise ValueError(f"{name}: moved {moved}")
    with open(os.path.join(outdir, "logits.f32"), "wb") as f:
        f.write(logits.contiguous().numpy().astype("<f4").tobytes())
    with open(os.path.join(outdir, "golden.json"), "w") as f:
        json.dump(doc, f)
        f.write("\n")
    return moved


def prompt_of(path, spec):
    with open(os.path.join(path, "golden.json")) as f:
        prompt = json.load(f)["prompt"][:ROWS]
    tokens = spec.get("config", {}).get("alora_invocation_tokens")
    if tokens:  # twice: the last occurrence counts
        prompt[3:3 + len(tokens)] = tokens
        prompt[11:11 + len(tokens)] = tokens
    return prompt


def make(name, spec, models, outdir):
    import peft

    path = os.path.join(models, spec["base"])
    prompt = prompt_of(path, spec)
    model = peft.get_peft_model(g.load_model(path), peft_config(spec))
    fill(name, model)
    model.eval()
    logits = g.forward_of(model)(prompt)
    tmp = tempfile.mkdtemp()
    try:
        model.save_pretrained(tmp, save_embedding_layers=False)
        tensors = g.st_read(os.path.join(tmp, "adapter_model.safetensors"))
        shutil.copy(os.path.join(tmp, "adapter_config.json"), outdir)
    finally:
        shutil.rmtree(tmp)
    if not spec["plain"]:
        tensors = {k: v.to(torch.bfloat16) for k, v in tensors.items()}
    g.st_write(os.path.join(outdir, "adapter_model.safetensors"), tensors, {"format": "pt"})
    print(name, sorted((k, tuple(v.shape)) for k, v in tensors.items())[:8], len(tensors))
    return store(name, spec, logits, base_logits(path, prompt), prompt, outdir)


def make_stacked(name, spec, models, out, outdir):
    """The adapters as they were stored, on one base at the same time."""
    import peft

    path = os.path.join(models, spec["base"])
    prompt = prompt_of(path, spec)
    model, names = None, []
    for i, (other, scale) in enumerate(spec["with"]):
        names.append(f"a{i}")
        if model is None:
            model = peft.PeftModel.from_pretrained(g.load_model(path), os.path.join(out, other), adapter_name="a0")
        else:
            model.load_adapter(os.path.join(out, other), adapter_name=names[-1])
    model.to(torch.float32)
    model.base_model.set_adapter(names)
    for i, (_, scale) in enumerate(spec["with"]):
        for m in model.modules():
            if hasattr(m, "scaling") and isinstance(m.scaling, dict) and f"a{i}" in m.scaling:
                m.scaling[f"a{i}"] *= scale
    model.eval()
    return store(name, spec, g.forward_of(model)(prompt), base_logits(path, prompt), prompt, outdir)


def main():
    models, out, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]
    torch.manual_seed(1)
    report = {}
    for name, spec in CASES.items():
        if wanted and name not in wanted:
            continue
        outdir = os.path.join(out, name)
        os.makedirs(outdir, exist_ok=True)
        try:
            if "with" in spec:
                report[name] = make_stacked(name, spec, models, out, outdir)
            else:
                report[name] = make(name, spec, models, outdir)
        except Exception as e:
            traceback.print_exc()
            report[name] = f"failed: {e}"
        print(name, report[name], flush=True)
    with open(os.path.join(out, "summary.json"), "w") as f:
        json.dump(report, f, indent=1)


main()
