#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saves the reference models again with transformers, to see how it writes them today.

  resave.py OUT [NAME ...]

Every directory of models/ that transformers can load (not the MLX ones) is loaded as bfloat16 and written by
save_pretrained. What is kept of it is only what cannot be derived, in OUT/<name>/:

  config.json   as save_pretrained wrote it
  logits.f32    only where the saved weights give other logits than the published ones (f32 tensors became bf16)
  VARIANT.f32   logits of the saved model with some fields of config.json changed (VARIANTS below)

and in OUT/table.json, per name:

  digest        of names, types, shapes and bytes of all saved tensors; check.py must rebuild exactly these
  carried       fields of config.json that transformers only carries along: without them it computes the same
  difference    of the logits of the saved model to the reference, in standard deviations
  variants      the changed fields of each variant
  tensors       "published": save_pretrained keeps other tensors in float32 than published files do, so that check.py reads
                the saved config.json with the published tensors

A model is left out, with the reason, where transformers does not compute the reference before saving, or where what it
saved cannot be loaded again (LEFT_OUT: known cases). The script is deterministic and needs transformers; nothing else here does. Copy OUT/ to
resaved/ when it was run with a newer version.
"""

import dataclasses
import json
import os
import shutil
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True

import generate
import specs_text
import torch

import check

HERE = os.path.dirname(os.path.abspath(__file__))
VARIANTS = {"mamba2": {"limit": {"time_step_limit": [0.3, 0.6]}}}
LEFT_OUT = {
    "gpt_oss_mxfp4": "transformers 5.17 dequantizes the experts and saves those of every layer under the same two names, "
                     "gate_up_proj$ and down_proj$, so that only the last layer's are left",
}
KEPT = ("architectures", "model_type", "dtype", "transformers_version")


def logits_of(path, ids, groups):
    if groups < 2:
        return generate.forward_of(generate.load_model(path))(ids)
    with generate.GroupedGateNorm(groups):
        return generate.forward_of(generate.load_model(path))(ids)


def save_again(src, dst):
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(src)
    model = generate.causal_class(config).from_pretrained(src, config=config, dtype=torch.bfloat16)
    model.save_pretrained(dst)
    return {f.name for f in dataclasses.fields(type(config))}


def carried(saved, fields, ids, want, groups):
    """The fields that no class declares and whose absence changes nothing."""
    with open(os.path.join(saved, "config.json")) as f:
        config = json.load(f)
    out = []
    for key in sorted(config):
        if key in fields or key in KEPT:
            continue
        generate.write_config(saved, {k: v for k, v in config.items() if k != key and k not in out})
        try:
            same = torch.equal(logits_of(saved, ids, groups), want)
        except Exception:
            same = False
        if same:
            out.append(key)
    generate.write_config(saved, config)
    return out


def write_logits(path, logits):
    with open(path, "wb") as f:
        f.write(logits.contiguous().numpy().astype("<f4").tobytes())


def resave_text(name, src, saved, out, ids, want, std):
    """A model whose file lacks the tower: only config.json is of interest."""
    before, after = (float((generate.forward_of(m)(ids) - want).abs().max()) / std for m in specs_text.resave(name, src, saved))
    if max(before, after) > check.BOUND:
        raise ValueError(f"transformers' logits differ by {before:.2e} and, saved, {after:.2e} standard deviations")
    os.makedirs(os.path.join(out, name))
    shutil.copy(os.path.join(saved, "config.json"), os.path.join(out, name))
    return {"digest": "", "carried": [], "difference": after, "tensors": "published"}


def resave(name, root, out):
    src, saved = os.path.join(HERE, "models", name), os.path.join(root, name)
    with open(os.path.join(src, "golden.json")) as f:
        golden = json.load(f)
    with open(os.path.join(src, "config.json")) as f:
        groups = json.load(f).get("n_groups", 1)
    ids, std = golden["prompt"], golden["logit_std"]
    with open(os.path.join(src, "logits.f32"), "rb") as f:
        want = torch.frombuffer(bytearray(f.read()), dtype=torch.float32).reshape(len(ids), -1)
    if name in specs_text.SPECS:
        return resave_text(name, src, saved, out, ids, want, std)
    first = float((logits_of(src, ids, groups) - want).abs().max()) / std
    if first > check.BOUND:
        raise ValueError(f"as it is, transformers' logits differ by {first:.2e} standard deviations")
    fields = save_again(src, saved)
    again = logits_of(saved, ids, groups)
    entry = {"digest": check.digest(check.read_tensors(os.path.join(saved, "model.safetensors"))),
             "carried": carried(saved, fields, ids, again, groups),
             "difference": float((again - want).abs().max()) / std}
    rebuilt = check.digest(check.resaved_tensors(name, src))
    if rebuilt != entry["digest"]:
        print(f"     {name}: check.py does not rebuild these tensors", flush=True)
        entry["tensors"] = "published"
    os.makedirs(os.path.join(out, name))
    shutil.copy(os.path.join(saved, "config.json"), os.path.join(out, name))
    if entry["difference"] > check.BOUND:
        write_logits(os.path.join(out, name, "logits.f32"), again)
    with open(os.path.join(saved, "config.json")) as f:
        config = json.load(f)
    for variant, changed in VARIANTS.get(name, {}).items():
        generate.write_config(saved, {**config, **changed})
        write_logits(os.path.join(out, name, variant + ".f32"), logits_of(saved, ids, groups))
        entry.setdefault("variants", {})[variant] = changed
    return entry


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    out = sys.argv[1]
    names = sys.argv[2:] or [n for n in sorted(os.listdir(os.path.join(HERE, "models"))) if "_mlx" not in n]
    os.makedirs(out, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    table = {"versions": generate.versions(), "models": {}, "left_out": {}}
    with tempfile.TemporaryDirectory() as root:
        for name in names:
            try:
                if name in LEFT_OUT:
                    raise ValueError(LEFT_OUT[name])
                table["models"][name] = resave(name, root, out)
                print("ok  ", name, table["models"][name], flush=True)
            except Exception as e:
                table["left_out"][name] = str(e).splitlines()[0][:300]
                print("FAIL", name, flush=True)
                traceback.print_exc(file=sys.stdout)
    with open(os.path.join(out, "table.json"), "w") as f:
        json.dump(table, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
