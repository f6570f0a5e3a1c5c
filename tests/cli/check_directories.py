#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Directories of Hugging Face and MLX that hearth convert writes.

  check_directories.py HEARTH [all]

Golden models were saved by transformers: what comes back from their GGUF file must be their tensors, byte for byte, and the
GGUF file of that the same bytes again. Packed MLX modules are decoded here and compared with what hearth makes of them; MLX's
own rule of packing is written down here as well.
"""
import glob
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

HEARTH = sys.argv[1]
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(HERE, "golden/models")
DEMO = os.path.join(os.path.dirname(HERE), "models/demo/demo.gguf")
SOME = """llama llama_rope3 mistral mixtral qwen3_moe gemma2 phi3_longrope granitemoe stablelm nemotron deepseek_v2 gpt2 gpt_oss
  jamba nemotron_h kimi_linear""".split()
ALL = SOME + """afmoe arcee axk1 biogpt bitnet bloom codeshell cohere cohere2 cohere2_moe cohere_qk cwm dbrx deepseek
  deepseek_v2_lite deepseek_v3 deepseek_v3_noq dots1 ernie4_5 ernie4_5_moe exaone4 exaone_moe falcon falcon_h1_plain
  falcon_mamba falcon_new flex_olmo gemma gemma3_text gemma4_text gemma4_text_moe glm glm4 glm4_moe glm4_moe_lite
  gpt_bigcode gpt_neox gpt_neox_serial gptj granite granite_swa granitemoehybrid granitemoehybrid_dense
  granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe hy_v3 hyperclovax jais2 laguna lfm2 lfm2_moe llama4_text
  llama_linear llama_yarn mamba mamba2 mamba2_groups mellum mimo_v2_flash minimax_m2 ministral ministral3 mistral4
  mpt nanochat olmo olmo2 olmo3 olmoe olmoe_clip opt orion persimmon phi phi3 phi3_longrope_short phimoe qwen2
  qwen2_moe qwen2_moe_mixed qwen3 qwen3_next refact seed_oss smollm3 solar_open stablelm_parallel starcoder2
  vaultgemma youtu""".split()
NOT_INVERTIBLE = ("self_attn.A_log",)  # a logarithm in F32: several give the same bytes in GGUF


def run(*arguments, fails=False):
    got = subprocess.run([HEARTH, *arguments], capture_output=True, text=True)
    if (got.returncode != 0) != fails:
        sys.exit(f"hearth {' '.join(arguments)}: {got.returncode} {got.stderr}")
    return got.stderr if fails else got.stdout


def tensors(folder):
    found = {}
    for path in glob.glob(folder + "/*.safetensors"):
        data = open(path, "rb").read()
        n = struct.unpack("<Q", data[:8])[0]
        for name, t in json.loads(data[8:8 + n]).items():
            if name != "__metadata__":
                begin, end = (8 + n + x for x in t["data_offsets"])
                found[name] = (t["dtype"], t["shape"], data[begin:end])
    return found


def floats(kind, data):
    if kind == "F32":
        return struct.unpack(f"<{len(data) // 4}f", data)
    if kind == "F16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]


def same_files(a, b):
    return open(a, "rb").read() == open(b, "rb").read()


def there_and_back(name, folder):
    """HF -> GGUF -> HF -> GGUF."""
    source, first, second, back = (os.path.join(folder, x) for x in ("s", "1.gguf", "2.gguf", "hf"))
    shutil.copytree(os.path.join(GOLDEN, name), source, dirs_exist_ok=True)
    run("convert", source, first, "--no-tokenizer", "--name", "x")
    run("convert", first, back, "--to", "hf", "--no-tokenizer")
    want, got = tensors(source), tensors(back)
    assert want.keys() == got.keys(), (name, want.keys() ^ got.keys())
    for key in want:
        same = 2 if want[key][0] == "F32" and key.endswith(NOT_INVERTIBLE) else 3
        assert want[key][:same] == got[key][:same], (name, key, want[key][:2], got[key][:2])
    run("convert", back, second, "--no-tokenizer", "--name", "x")
    assert same_files(first, second), name
    for path in (source, back):
        shutil.rmtree(path)


def quantized(name, folder):
    """A quantized GGUF file whose matrices Hugging Face stores inputs by outputs: the directory's numbers are the file's."""
    plain, small, back = (os.path.join(folder, x) for x in ("p.gguf", "q.gguf", "hf"))
    run("convert", os.path.join(GOLDEN, name), plain, "--no-tokenizer")
    run("quantize", plain, small, "Q8_0")
    run("convert", small, back, "--to", "hf", "--type", "F32", "--no-tokenizer")
    a, b = (rows(d, "1,5,9,13,77", folder) for d in (small, back))
    worst = max(abs(x - y) for x, y in zip(a, b))
    assert worst < 1e-4 * max(map(abs, a)), (name, worst)
    shutil.rmtree(back)


def decode(weight, scales, biases, bits, group):
    """The numbers of an affine module, from its definition: s q + b, codes from the lowest bit on."""
    _, shape, data = weight
    s, b = floats(scales[0], scales[2]), floats(biases[0], biases[2])
    words, rows, out = shape[-1] * 4, len(data) // (shape[-1] * 4), []
    for r in range(rows):
        row = int.from_bytes(data[r * words:(r + 1) * words], "little")
        for c in range(words * 8 // bits):
            g = (r * (words * 8 // bits) + c) // group
            out.append(s[g] * (row >> (c * bits) & ((1 << bits) - 1)) + b[g])
    return out


def rows(model, ids, folder):
    """The logits, computed by the reference backend: it rounds nothing but its sums."""
    path = os.path.join(folder, "logits")
    run("logits", model, "--ids", ids, "--scalar", "--out", path)
    return floats("F32", open(path, "rb").read())


def packed(name, kind, group, folder):
    """HF -> MLX: the config says how each module is packed, and its numbers are near those of the source."""
    out, plain = os.path.join(folder, "mlx"), os.path.join(folder, "plain")
    source = os.path.join(GOLDEN, name)
    run("convert", source, out, "--to", "mlx", "--type", kind, "--group", str(group), "--no-tokenizer")
    run("convert", out, plain, "--to", "hf", "--type", "F32", "--no-tokenizer")
    how = json.load(open(out + "/config.json"))["quantization"]
    assert how["group_size"] == group, how
    have, numbers, seen = tensors(out), tensors(plain), set()
    for key in have:
        module = key.removesuffix(".weight")
        if module + ".scales" not in have or key == module:
            continue
        mine = how.get(module, how)
        values = decode(have[key], have[module + ".scales"], have[module + ".biases"], mine["bits"], mine["group_size"])
        seen.add(mine["bits"])
        if ".switch_mlp." in module:
            continue  # one tensor there, one per expert here
        got = floats("F32", numbers[key][2])
        worst = max(abs(x - y) for x, y in zip(values, got))
        assert len(values) == len(got) and worst < 1e-6, (name, key, worst)
        if mine["bits"] == 4 and "layers.0" in key:  # not above the error of MLX's rule, rounded alike
            numbers_of, loss = floats(*tensors(source)[key][::2]), 0.0
            for k in range(0, len(values), group):
                x = numbers_of[k:k + group]
                s, b, codes = mlx_rule(x, 4)
                s, b = (struct.unpack("<f", struct.pack("<I", v << 16))[0] for v in (s, b))
                loss += sum((s * c + b - v) ** 2 for c, v in zip(codes, x))
            assert sum((x - y) ** 2 for x, y in zip(values, numbers_of)) <= loss, (key, loss)
    ids = "1,5,9,200,13,77"
    a, b = (rows(d, ids, folder) for d in (out, plain))
    worst = max(abs(x - y) for x, y in zip(a, b))
    assert worst < 1e-3 * max(map(abs, a)), (name, kind, worst)
    shutil.rmtree(out)
    shutil.rmtree(plain)
    return seen


def mlx_round(name, folder):
    """MLX of 16 bits -> HF -> MLX: equal bytes, stacked experts included."""
    a, hf, b = (os.path.join(folder, x) for x in ("a", "hf", "b"))
    run("convert", os.path.join(GOLDEN, name), a, "--to", "mlx", "--no-tokenizer")
    assert name == "llama" or any("switch_mlp" in key for key in tensors(a)), tensors(a).keys()
    run("convert", a, hf, "--to", "hf", "--no-tokenizer")
    assert tensors(hf) == tensors(os.path.join(GOLDEN, name))
    run("convert", hf, b, "--to", "mlx", "--no-tokenizer")
    assert same_files(a + "/model.safetensors", b + "/model.safetensors") and same_files(a + "/config.json", b + "/config.json")
    for path in (a, hf, b):
        shutil.rmtree(path)


def bf16(x):
    """To the nearest number of 16 bits, ties to even: its bits."""
    u = struct.unpack("<I", struct.pack("<f", x))[0]
    return (u + 0x7fff + (u >> 16 & 1)) >> 16


def mlx_rule(x, bits):
    """MLX's own rule for a group: scale, bias and codes. The end that is farther from zero is a code, and so is zero."""
    low, high, top = min(x), max(x), (1 << bits) - 1
    scale = max((high - low) / top, 1e-7)
    edge = low if abs(low) > abs(high) else high
    scale = scale if edge == low else -scale
    zero = round(edge / scale)
    scale, bias = (edge / zero, edge) if zero else (scale, 0.0)
    return bf16(scale), bf16(bias), [min(max(round((v - bias) / scale), 0), top) for v in x]


def mlx_checkpoint(source, out, bits, group):
    """A directory as mlx-lm packs it, in BF16; a few groups are alike, zero, far from zero or of even codes only."""
    os.mkdir(out)
    have, parts, places, at = tensors(source), [], {}, 0

    def put(name, kind, shape, data):
        nonlocal at
        places[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)

    for name, (kind, shape, data) in have.items():
        x = list(floats(kind, data))
        if "norm" in name:
            put(name, "BF16", shape, struct.pack(f"<{len(x)}H", *map(bf16, x)))
            continue
        words, scales, biases = [], [], []
        for i, k in enumerate(range(0, len(x), group)):
            g = x[k:k + group]
            g = [0.25] * group if i == 1 else [0.0] * group if i == 2 else [3 + v / 64 for v in g] if i == 3 and bits > 2 else g
            s, b, codes = mlx_rule(g, bits)
            codes = [c & ~1 for c in codes] if i % 7 == 4 else codes
            words.append(sum(c << (bits * n) for n, c in enumerate(codes)).to_bytes(group * bits // 8, "little"))
            scales.append(s)
            biases.append(b)
        module, rows = name.removesuffix(".weight"), shape[0]
        put(name, "U32", [rows, shape[1] * bits // 32], b"".join(words))
        put(module + ".scales", "BF16", [rows, shape[1] // group], struct.pack(f"<{len(scales)}H", *scales))
        put(module + ".biases", "BF16", [rows, shape[1] // group], struct.pack(f"<{len(biases)}H", *biases))
    config = json.load(open(source + "/config.json"))
    how = {"group_size": group, "bits": bits, "mode": "affine"}
    json.dump({**config, "torch_dtype": "bfloat16", "quantization": how, "quantization_config": how}, open(out + "/config.json", "w"))
    head = json.dumps({"__metadata__": {"format": "mlx"}, **places}).encode()
    head += b" " * (-len(head) % 8)
    open(out + "/model.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + b"".join(parts))


def mlx_packed_round(name, kind, group, folder, *how):
    """Packed MLX -> HF -> MLX: equal bytes, whoever packed it; and a change of the numbers changes its group only."""
    a, hf, b = (os.path.join(folder, x) for x in ("a", "hf", "b"))
    if kind.startswith("mlx-"):
        mlx_checkpoint(os.path.join(GOLDEN, name), a, int(kind[4:]), group)
        numbers, have = os.path.join(folder, "numbers"), tensors(a)
        run("convert", a, numbers, "--to", "hf", "--type", "F32", "--no-tokenizer")
        for key, (_, _, data) in tensors(numbers).items():
            module = key.removesuffix(".weight")
            if module + ".scales" in have:
                want = decode(have[key], have[module + ".scales"], have[module + ".biases"], int(kind[4:]), group)
                assert all(abs(x - y) <= 1e-6 * max(1, abs(x)) for x, y in zip(want, floats("F32", data))), key
        shutil.rmtree(numbers)
    else:
        columns = ("--group", str(group)) if group else ()
        run("convert", os.path.join(GOLDEN, name), a, "--to", "mlx", "--type", kind, *columns, "--no-tokenizer")
    run("convert", a, hf, "--to", "hf", "--no-tokenizer", *how)
    run("convert", hf, b, "--to", "mlx", "--no-tokenizer")
    assert tensors(a) == tensors(b), (name, kind)
    if not kind.startswith("mlx-"):  # ours, so the whole file is
        assert same_files(a + "/model.safetensors", b + "/model.safetensors") and same_files(a + "/config.json", b + "/config.json")
    shutil.rmtree(b)
    if not how:
        path, packed = hf + "/model.safetensors", tensors(a)
        data = bytearray(open(path, "rb").read())
        data[-1] ^= 0x40  # the exponent of the last number of the last tensor
        open(path, "wb").write(data)
        last = max(json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]]).items(), key=lambda t: t[1].get("data_offsets", [0])[0])[0]
        run("convert", hf, b, "--to", "mlx", "--no-tokenizer")
        after = tensors(b)
        assert packed.keys() == after.keys() and {k for k in packed if packed[k] != after[k]} <= {last, *(last.removesuffix("weight") + x for x in ("scales", "biases"))}
        shutil.rmtree(b)
    for path in (a, hf):
        shutil.rmtree(path)


def whole(folder, kills):
    """A model with a tokenizer, in several weight files; killed and continued, it is the same."""
    first, second = os.path.join(folder, "first"), os.path.join(folder, "second")
    arguments = ("--to", "hf", "--shard-size", "8", "--json")
    a = json.loads(run("convert", DEMO, first, *arguments))
    listing = "".join(f"{sum256(path)}  {os.path.basename(path)}\n" for path in sorted(glob.glob(first + "/*.safetensors")))
    assert len(glob.glob(first + "/*.safetensors")) > 3 and sum256(None, listing.encode()) == a["sha256"]
    text = "The 3333 men can't, 33\n\n  über 你好"
    assert run("tokenize", DEMO, "--text", text) == run("tokenize", first, "--text", text)
    delay = 0.02
    for i in range(kills):
        child = subprocess.Popen([HEARTH, "convert", DEMO, second, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay + 0.013 * (i % 7))
        child.send_signal(signal.SIGKILL)
        child.wait()
        if os.path.isdir(second):
            shutil.rmtree(second)
    child = subprocess.Popen([HEARTH, "convert", DEMO, second, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while child.poll() is None and not glob.glob(second + ".partial/*"):
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.wait()
    shutil.rmtree(second, ignore_errors=True)
    if os.path.isdir(second + ".partial"):  # what a process leaves that is killed between two calls
        for file in ("model-00001-of-00002.safetensors.journal", "config.json.x7k2"):
            open(os.path.join(second + ".partial", file), "w").close()
    b = json.loads(run("convert", DEMO, second, *arguments))
    assert a["sha256"] == b["sha256"] and a["checksum"] == b["checksum"]
    assert sorted(os.listdir(first)) == sorted(os.listdir(second)) and ".job" not in os.listdir(second)
    for file in os.listdir(first):
        assert same_files(os.path.join(first, file), os.path.join(second, file)), file
    assert "already" in run("convert", DEMO, first, "--to", "hf", fails=True)


def killed(folder, n):
    """kill -9 at n random moments each: the same command then gives the same SHA-256, as a file and as a directory."""
    source = os.path.join(folder, "source")
    run("convert", DEMO, source, "--to", "hf")
    k = os.path.join(folder, "k")
    jobs = (["convert", source, k, "--to", "gguf", "--type", "Q4_K_M", "--json"],
            ["convert", DEMO, k, "--to", "hf", "--shard-size", "2", "--json"],
            ["convert", DEMO, k, "--to", "mlx", "--type", "4bit", "--shard-size", "2", "--json"])
    for job in jobs:
        begun = time.monotonic()
        want = json.loads(run(*job))["sha256"]
        took, resumed, late = time.monotonic() - begun, 0, 0
        for _ in range(n):
            shutil.rmtree(k) if os.path.isdir(k) else os.unlink(k)
            child = subprocess.Popen([HEARTH, *job], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(random.uniform(0, took))
            child.send_signal(signal.SIGKILL)
            child.wait()
            if os.path.exists(k):  # it was done before
                late += 1
                continue
            got = json.loads(run(*job))
            assert got["sha256"] == want, job
            resumed += got["resumed"] > 0
        print(f"{job[4]}: {n} kills, {late} of them after its end, {resumed} with something to continue: the same SHA-256")
        shutil.rmtree(k) if os.path.isdir(k) else os.unlink(k)


def sum256(path, data=None):
    import hashlib
    return hashlib.sha256(data if data is not None else open(path, "rb").read()).hexdigest()


def muted(folder):
    """Tokens that are not to be said go along, there and back; what is no token of the vocabulary does not."""
    hf, gguf, back = (os.path.join(folder, name) for name in ("muted", "muted.gguf", "muted-back"))
    run("convert", DEMO, hf, "--to", "hf")
    settings = os.path.join(hf, "generation_config.json")
    said = json.load(open(settings))
    assert "suppress_tokens" not in said
    json.dump(dict(said, suppress_tokens=[28, 26, -1, 1 << 20]), open(settings, "w"))
    run("convert", hf, gguf)
    run("convert", gguf, back, "--to", "hf")
    assert json.load(open(os.path.join(back, "generation_config.json")))["suppress_tokens"] == [28, 26]


def refusals(folder):
    gguf = os.path.join(folder, "bert.gguf")
    run("convert", os.path.join(GOLDEN, "../encoders/bert_mean"), gguf, "--no-tokenizer")
    assert '"bert"' in run("convert", gguf, os.path.join(folder, "no"), "--to", "hf", "--no-tokenizer", fails=True)
    assert "7bit" in run("convert", gguf, os.path.join(folder, "no"), "--to", "mlx", "--type", "7bit", fails=True)
    assert "F16" in run("convert", gguf, os.path.join(folder, "no"), "--to", "hf", "--type", "Q4_K_M", fails=True)
    assert not glob.glob(os.path.join(folder, "no*"))


if not os.path.isdir(GOLDEN):
    print("skipped: no golden models")
    sys.exit(0)
everything = len(sys.argv) > 2
with tempfile.TemporaryDirectory() as temporary:
    for golden in ALL if everything else SOME:
        there_and_back(golden, temporary)
    for bits in (2, 3, 4, 6, 8):
        for columns in (32, 64) if everything else (32,):
            assert packed("llama", f"{bits}bit", columns, temporary) == {bits}
    assert packed("qwen3_moe", "mixed_3_6", 32, temporary) == {3, 6, 8}
    for golden in ("gpt2", "deepseek_v3", "gpt_oss"):
        quantized(golden, temporary)
    for golden in ("llama", "mixtral"):
        mlx_round(golden, temporary)
    rounds = [("llama", "mlx-4", 64), ("mixtral", "mixed_3_6", 32), ("llama", "nvfp4", 0)]
    if everything:
        rounds += [("llama", f"mlx-{bits}", columns) for bits in (2, 3, 5, 6, 8) for columns in (32, 64)]
        rounds += [("llama", "mlx-8", 64, "--type", "F32"), ("llama", "mlx-4", 64, "--type", "F16"), ("llama", "8bit", 64), ("llama", "mxfp4", 0), ("llama", "mxfp8", 0)]
    for golden, kind, columns, *how in rounds:
        mlx_packed_round(golden, kind, columns, temporary, *how)
    refusals(temporary)
    if os.path.isfile(DEMO):
        muted(temporary)
        whole(temporary, 3)
        if everything:
            killed(temporary, 50)
print(f"{len(ALL if everything else SOME)} families there and back; packed modules and several weight files as they should be")
