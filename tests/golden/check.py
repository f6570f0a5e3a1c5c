#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `hearth logits` with the reference logits.

  check.py HEARTH [--gguf | --resaved | --relaid] [--all] [--device=ID] [NAME ...]

Each reference model is run as its Hugging Face directory, with --gguf as the GGUF file that to_gguf.py makes of it, or
with --resaved as transformers saves it again (resave.py): with the config.json that it wrote, without the fields that
it only carries along, and with single fields changed where transformers' logits for that are stored. --relaid takes the
forms of relay.py, families with the arithmetic of another one, as a directory and as a GGUF file. All prompt logits
agree within 2e-3 of their standard deviation, and the greedy continuation token for token. Models with quantized
weights are compared on the reference backend, because the fast one also quantizes activations; there only their
continuation counts when it agrees within the margin. --all adds runs in chunks of 1, 7 and 32 and with 1 and 2 threads,
which must give the same bytes. --device chooses another device than the CPU; a GPU multiplies 16-bit numbers, so there
the bound is GPU_BOUND, and the continuation is not compared: these small models choose between near equals.
"""

import array
import hashlib
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
BOUND = 2e-3
GPU_BOUND = 2.5e-2
DEVICE = next((a.split("=", 1)[1] for a in sys.argv[1:] if a.startswith("--device=")), None)

# How save_pretrained changes models/: names of tensors, and f32 tensors that it does not keep in f32.
RENAMED = {
    "gpt2": (r"^", "transformer."),
    "kimi_linear": (r"\.mlp\.", ".block_sparse_moe."),
}
# What a GGUF file cannot say of them: Baichuan's files have ALiBi where there are 40 layers, MiniCPM 3's have no scales.
NOT_IN_GGUF = ("baichuan_alibi", "minicpm3")
ROUNDED = ("kimi_linear", "minimax_m2")


def some(names):
    """All of them, or with HEARTH_EVERY=N every N-th: under a sanitizer memory counts, and the numbers were compared without it."""
    return names[:: int(os.environ.get("HEARTH_EVERY", "1"))]


def read_tensors(path):
    """name -> (type, shape, bytes)"""
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + n])
    header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]])
            for k, v in header.items()}


def write_tensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        kind, shape, data = tensors[name]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + b"".join(tensors[n][2] for n in sorted(tensors)))


def digest(tensors):
    h = hashlib.sha256()
    for name in sorted(tensors):
        kind, shape, data = tensors[name]
        h.update(f"{name} {kind} {shape} ".encode() + data)
    return h.hexdigest()


def to_bf16(data):
    """f32 bytes rounded to the nearest bf16, ties to even"""
    words = array.array("I", data)
    return array.array("H", [(x + 0x7FFF + (x >> 16 & 1)) >> 16 for x in words]).tobytes()


def resaved_tensors(name, src):
    """What save_pretrained makes of a model that was loaded as bfloat16."""
    old, new = RENAMED.get(name, (r"^$", ""))
    out = {}
    for k, (kind, shape, data) in read_tensors(os.path.join(src, "model.safetensors")).items():
        if kind == "F32" and name in ROUNDED:
            kind, data = "BF16", to_bf16(data)
        out[re.sub(old, new, k)] = (kind, shape, data)
    return out


def resaved(name, src, tmp):
    """(directory, its logits; None: the reference's) of every form of the saved model"""
    here = os.path.join(HERE, "resaved", name)
    with open(os.path.join(HERE, "resaved", "table.json")) as f:
        entry = json.load(f)["models"][name]
    with open(os.path.join(here, "config.json")) as f:
        config = json.load(f)
    own = os.path.join(here, "logits.f32")
    own = own if os.path.exists(own) else None
    if entry.get("tensors") == "published":
        tensors, own = read_tensors(os.path.join(src, "model.safetensors")), None
    else:
        tensors = resaved_tensors(name, src)
        if digest(tensors) != entry["digest"]:
            raise ValueError("the tensors are not those that transformers saved")
    forms = [("whole", config, own)]
    if entry["carried"]:
        forms.append(("bare", {k: v for k, v in config.items() if k not in entry["carried"]}, own))
    for variant, fields in entry.get("variants", {}).items():
        forms.append((variant, {**config, **fields}, os.path.join(here, variant + ".f32")))
    out = []
    for kind, fields, logits in forms:
        path = os.path.join(tmp, name + "-" + kind)
        os.makedirs(path)
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(fields, f)
        write_tensors(os.path.join(path, "model.safetensors"), tensors)
        out.append((path, logits))
    return out


def model_type(name):
    with open(os.path.join(HERE, "models", name, "config.json")) as f:
        return json.load(f)["model_type"]


def run(hearth, model, ids, out, *more):
    if DEVICE and "--scalar" not in more:
        more = (*more, "--device", DEVICE)
    cmd = [hearth, "logits", model, "--ids", ",".join(map(str, ids)), "--out", out, *more]
    p = subprocess.run(cmd, capture_output=True, text=True, timeout=300)
    if p.returncode:
        raise ValueError((p.stderr or p.stdout).strip()[-300:])
    with open(out, "rb") as f:
        return f.read(), p.stdout


def compare(got, want, std, gpu_bound=GPU_BOUND):
    a, b = array.array("f", got), array.array("f", want)
    if len(a) < len(b):
        raise ValueError(f"{len(a)} logits instead of {len(b)}")
    worst = max(abs(x - y) if math.isfinite(x) else math.inf for x, y in zip(a, b)) / std
    if worst > (gpu_bound if DEVICE else BOUND):
        raise ValueError(f"logits differ by {worst:.2e} standard deviations")
    return worst


def relaid(name, tmp):
    """(its reference, [(directory or GGUF file, None), ...])"""
    import relay
    import to_gguf
    import to_gguf_dense

    base, make = relay.FORMS[name]
    src, path = os.path.join(HERE, "models", base), os.path.join(tmp, name)
    with open(os.path.join(src, "config.json")) as f:
        config = json.load(f)
    config, tensors = make(config, read_tensors(os.path.join(src, "model.safetensors")))
    with open(os.path.join(HERE, "relaid", name + ".json")) as f:
        if json.load(f) != config:
            raise ValueError(f"relaid/{name}.json is not what relay.py makes")
    os.makedirs(path)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    write_tensors(os.path.join(path, "model.safetensors"), tensors)
    out = [(path, None)]
    if config["model_type"] not in to_gguf_dense.NO_PEER and name not in ("step3p5_mlx", "phi4mm", "minimax_m3_vl"):
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(config.get("text_config", config), f)
        to_gguf.convert(path, path + ".gguf")
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(config, f)
        out.append((path + ".gguf", None))
    return base, out


def check(hearth, name, kind, everything, tmp):
    if kind == "relaid":
        base, models = relaid(name, tmp)
        with open(os.path.join(HERE, "models", base, "golden.json")) as f:
            golden = json.load(f)
        return max(check_one(hearth, base, model, golden, None, everything, tmp) for model, _ in models)
    src = os.path.join(HERE, "models", name)
    with open(os.path.join(src, "golden.json")) as f:
        golden = json.load(f)
    models = [(src, None)]
    if kind == "gguf":
        import to_gguf

        models = [(os.path.join(tmp, name + ".gguf"), None)]
        to_gguf.convert(src, models[0][0])
    elif kind == "resaved":
        models = resaved(name, src, tmp)
    return max(check_one(hearth, name, model, golden, logits, everything, tmp) for model, logits in models)


def limited(hearth, tmp):
    """What is supported up to a length is refused beyond it, by name."""
    refused(hearth, "axk2", {"index_topk": 16}, os.path.join(tmp, "limited"), os.path.join(tmp, "logits.f32"))


def refused(hearth, name, change, path, out):
    src = os.path.join(HERE, "models", name)
    os.makedirs(path)
    with open(os.path.join(src, "config.json")) as f:
        config = json.load(f)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump({**config, **change}, f)
    os.symlink(os.path.join(src, "model.safetensors"), os.path.join(path, "model.safetensors"))
    run(hearth, path, list(range(3, 19)), out)
    try:
        run(hearth, path, list(range(3, 20)), out)
    except Exception as e:
        if "17 positions" in str(e) and "up to 16" in str(e):
            return
        raise
    raise ValueError(f"{name}: a prompt beyond the limit was answered")


def check_one(hearth, name, model, golden, logits, everything, tmp):
    out = os.path.join(tmp, "logits.f32")
    quantized = "_mlx" in name or "mxfp4" in name
    more = ["--scalar"] if quantized and not DEVICE else []
    with open(logits or os.path.join(HERE, "models", name, "logits.f32"), "rb") as f:
        want = f.read()
    got, text = run(hearth, model, golden["prompt"], out, "--greedy", str(len(golden["greedy"])), *more)
    worst = compare(got, want, golden["logit_std"], 0.15 if name.startswith("zamba2") else GPU_BOUND)  # see device_bound in test_models_golden
    greedy = json.loads(text.strip().splitlines()[-1])
    if greedy != golden["greedy"] and not DEVICE and (not logits or logits.endswith("logits.f32")):
        raise ValueError(f"the continuation is {greedy}, not {golden['greedy']}")
    if everything:
        first, _ = run(hearth, model, golden["prompt"], out)
        for extra in (["--chunk", "1"], ["--chunk", "7"], ["--chunk", "32"], ["--threads", "1"], ["--threads", "2"]):
            if run(hearth, model, golden["prompt"], out, *extra)[0] != first:
                raise ValueError(f"other bytes with {' '.join(extra)}")
    return worst


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    kind = next((k for k in ("gguf", "resaved", "relaid") if "--" + k in sys.argv), "hf")
    names = args[1:] or sorted(os.listdir(os.path.join(HERE, "models")))
    if kind == "relaid":
        import relay

        names = args[1:] or sorted(relay.FORMS)
    if kind == "gguf":
        import gguf_moe
        import to_gguf_dense

        names = [n for n in names if "_mlx" not in n and model_type(n) not in to_gguf_dense.NO_PEER
                 and n not in NOT_IN_GGUF and n not in gguf_moe.NOT_GGUF]
    if kind == "resaved":
        names = [n for n in names if os.path.exists(os.path.join(HERE, "resaved", n, "config.json"))]
    names = some(names)
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        if kind == "hf" and not DEVICE and not args[1:]:
            limited(args[0], tmp)
        for name in names:
            try:
                print(f"ok   {name} {check(args[0], name, kind, '--all' in sys.argv, tmp):.1e}", flush=True)
            except Exception as e:
                bad += 1
                print(f"FAIL {name}: {e}", flush=True)
    print(f"{len(names) - bad} of {len(names)} agree")
    return 1 if bad or not names else 0


if __name__ == "__main__":
    sys.exit(main())
