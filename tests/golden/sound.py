#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a tiny reference model that hears (Voxtral), and what it makes of short sounds.

  sound.py OUT

The equations are those of the papers and of the published code of Whisper and Llama, written down here for lists of floats of the standard
library and computed in double precision; nothing is shared with the program that is tested. Weights are random, saved as bf16 and used as
they were saved. A piece of sound is 0.4 s long instead of 30: the model has 20 positions for it, and everything else follows from that.

OUT receives
  sounds/NAME.wav     short sounds: a: less than a piece; b: two pieces and a bit, with an edge inside; c: a piece, stereo, 24 bits
                      (tone.mp3 beside them was written by LAME 3.100: 0.4 s of 440 Hz at 22050 Hz)
  voxtral/config.json, preprocessor_config.json, model.safetensors
  voxtral/golden.json cases: sounds, tokens, and where the values begin in the files below
  voxtral/mel.f32     [frames][bins] per sound, for 16, 80 and 128 bins
  voxtral/rows.f32    the rows that take the places of the audio tokens
  voxtral/logits.f32  of the last positions
"""

import array
import cmath
import json
import math
import os
import random
import struct
import sys

RATE, WINDOW, HOP = 16000, 400, 160
MELS, POSITIONS, WIDTH, HEADS, FF, LAYERS = 16, 20, 32, 4, 128, 2
TEXT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "vocab_size": 160, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 4096}
AUDIO, BEGIN, LAST = 150, 151, 8
CASES = [["a"], ["b"], ["c", "a"]]


# --- sounds ----------------------------------------------------------------------------------------------------------


def tones(n, seed, notes):
    rng = random.Random(seed)
    return [sum(a * math.sin(2 * math.pi * f * i / RATE + a) for f, a in notes) + rng.gauss(0, 0.01) for i in range(n)]


def clip(x, top):
    return max(-top, min(top - 1, round(x * top)))


def make_sounds(folder):
    """Mono samples by name, as they are read back from what is written."""
    os.makedirs(folder, exist_ok=True)
    a = tones(4100, 1, [(440, 0.3), (1330, 0.1)])
    b = tones(13100, 2, [(200, 0.25), (3100, 0.15), (6500, 0.05)])
    b[5000:9000] = [0.0] * 4000
    left, right = tones(6400, 3, [(700, 0.4)]), tones(6400, 4, [(5000, 0.3)])
    out = {}
    for name, channels, bits in (("a", [a], 16), ("b", [b], 16), ("c", [left, right], 24)):
        top = 1 << (bits - 1)
        whole = [[clip(x, top) for x in c] for c in channels]
        data = b"".join((v & ((1 << bits) - 1)).to_bytes(bits // 8, "little") for frame in zip(*whole) for v in frame)
        n = len(channels)
        fmt = struct.pack("<HHIIHH", 1, n, RATE, RATE * n * bits // 8, n * bits // 8, bits)
        body = b"WAVE" + b"fmt " + struct.pack("<I", 16) + fmt + b"data" + struct.pack("<I", len(data)) + data
        with open(os.path.join(folder, name + ".wav"), "wb") as f:
            f.write(b"RIFF" + struct.pack("<I", len(body)) + body)
        out[name] = [sum(frame) / top / n for frame in zip(*whole)]
    return out


# --- the spectrogram -------------------------------------------------------------------------------------------------


def hertz(m):
    """The Slaney scale: linear to 1000 Hz, which is 15, then 27 steps for a factor of 6.4."""
    return 200.0 * m / 3 if m < 15 else 1000.0 * math.exp((m - 15) * math.log(6.4) / 27)


def filters(bins):
    top = 15 + math.log(RATE / 2 / 1000.0) * 27 / math.log(6.4)
    edge = [hertz(top * i / (bins + 1)) for i in range(bins + 2)]
    out = []
    for m in range(bins):
        lo, mid, hi = edge[m : m + 3]
        fs = [k * RATE / WINDOW for k in range(WINDOW // 2 + 1)]
        out.append([max(0.0, min((f - lo) / (mid - lo), (hi - f) / (hi - mid))) * 2 / (hi - lo) for f in fs])
    return out


def powers(samples):
    """|STFT|^2 of the samples, padded with silence to whole pieces, mirrored at both ends; without the last frame."""
    piece = POSITIONS * 2 * HOP
    n = -(-len(samples) // piece) * piece
    x = samples + [0.0] * (n - len(samples))
    half = WINDOW // 2
    x = x[half:0:-1] + x + x[-2 : -half - 2 : -1]
    hann = [0.5 - 0.5 * math.cos(2 * math.pi * i / WINDOW) for i in range(WINDOW)]
    turn = [cmath.exp(-2j * math.pi * i / WINDOW) for i in range(WINDOW)]
    out = []
    for t in range(n // HOP):
        frame = [w * v for w, v in zip(hann, x[t * HOP : t * HOP + WINDOW])]
        if not any(frame):
            out.append([0.0] * (half + 1))
            continue
        out.append([abs(sum(v * turn[k * i % WINDOW] for i, v in enumerate(frame))) ** 2 for k in range(half + 1)])
    return out


def log_mel(spectrum, bins):
    bank = filters(bins)
    logs = [[math.log10(max(1e-10, sum(a * b for a, b in zip(p, f) if b))) for f in bank] for p in spectrum]
    floor = max(map(max, logs)) - 8
    return [[(max(v, floor) + 4) / 4 for v in row] for row in logs]


# --- layers ----------------------------------------------------------------------------------------------------------


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def linear(rows, w, b=None):
    return [[dot(r, o) + (b[i] if b else 0) for i, o in enumerate(w)] for r in rows]


def add(a, b):
    return [[x + y for x, y in zip(p, q)] for p, q in zip(a, b)]


def gelu(rows):
    return [[x / 2 * (1 + math.erf(x / math.sqrt(2))) for x in r] for r in rows]


def layer_norm(rows, w, b, eps=1e-5):
    out = []
    for r in rows:
        mean = math.fsum(r) / len(r)
        scale = 1 / math.sqrt(math.fsum((x - mean) ** 2 for x in r) / len(r) + eps)
        out.append([(x - mean) * scale * g + s for x, g, s in zip(r, w, b)])
    return out


def rms_norm(rows, w, eps):
    return [[x / math.sqrt(dot(r, r) / len(r) + eps) * g for x, g in zip(r, w)] for r in rows]


def attention(q, k, v, heads, kv_heads, causal):
    dim = len(q[0]) // heads
    out = [[] for _ in q]
    for h in range(heads):
        at, kt = h * dim, h // (heads // kv_heads) * dim
        for i, row in enumerate(q):
            seen = i + 1 if causal else len(k)
            scores = [dot(row[at : at + dim], k[j][kt : kt + dim]) / math.sqrt(dim) for j in range(seen)]
            top = max(scores)
            e = [math.exp(s - top) for s in scores]
            total = math.fsum(e)
            out[i] += [math.fsum(e[j] * v[j][kt + c] for j in range(seen)) / total for c in range(dim)]
    return out


def conv(rows, w, b, stride):
    """Three taps, one row of silence on each side; w: [out][in][tap]."""
    zero = [0.0] * len(rows[0])
    x = [zero] + rows + [zero]
    flat = [[o[c][t] for t in range(3) for c in range(len(o))] for o in w]
    return linear([x[i] + x[i + 1] + x[i + 2] for i in range(0, len(rows), stride)], flat, b)


def encoder(mel, w):
    x = gelu(conv(mel, w["conv1.weight"], w["conv1.bias"], 1))
    x = gelu(conv(x, w["conv2.weight"], w["conv2.bias"], 2))
    x = add(x, w["embed_positions.weight"])
    for i in range(LAYERS):
        p = f"layers.{i}."
        n = layer_norm(x, w[p + "self_attn_layer_norm.weight"], w[p + "self_attn_layer_norm.bias"])
        a = attention(linear(n, w[p + "self_attn.q_proj.weight"], w[p + "self_attn.q_proj.bias"]), linear(n, w[p + "self_attn.k_proj.weight"]),
                      linear(n, w[p + "self_attn.v_proj.weight"], w[p + "self_attn.v_proj.bias"]), HEADS, HEADS, False)
        x = add(x, linear(a, w[p + "self_attn.out_proj.weight"], w[p + "self_attn.out_proj.bias"]))
        n = layer_norm(x, w[p + "final_layer_norm.weight"], w[p + "final_layer_norm.bias"])
        x = add(x, linear(gelu(linear(n, w[p + "fc1.weight"], w[p + "fc1.bias"])), w[p + "fc2.weight"], w[p + "fc2.bias"]))
    return layer_norm(x, w["layer_norm.weight"], w["layer_norm.bias"])


def rotate(rows, heads, dim, theta):
    out = []
    for pos, r in enumerate(rows):
        new = list(r)
        for h in range(heads):
            for i in range(dim // 2):
                angle = pos * theta ** (-2 * i / dim)
                a, b = r[h * dim + i], r[h * dim + i + dim // 2]
                new[h * dim + i] = a * math.cos(angle) - b * math.sin(angle)
                new[h * dim + i + dim // 2] = b * math.cos(angle) + a * math.sin(angle)
        out.append(new)
    return out


def language(x, w):
    c = TEXT
    heads, kv, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    for i in range(c["num_hidden_layers"]):
        p = f"layers.{i}."
        n = rms_norm(x, w[p + "input_layernorm.weight"], c["rms_norm_eps"])
        q = rotate(linear(n, w[p + "self_attn.q_proj.weight"]), heads, dim, c["rope_theta"])
        k = rotate(linear(n, w[p + "self_attn.k_proj.weight"]), kv, dim, c["rope_theta"])
        a = attention(q, k, linear(n, w[p + "self_attn.v_proj.weight"]), heads, kv, True)
        x = add(x, linear(a, w[p + "self_attn.o_proj.weight"]))
        n = rms_norm(x, w[p + "post_attention_layernorm.weight"], c["rms_norm_eps"])
        gate, up = linear(n, w[p + "mlp.gate_proj.weight"]), linear(n, w[p + "mlp.up_proj.weight"])
        inner = [[g / (1 + math.exp(-g)) * u for g, u in zip(a, b)] for a, b in zip(gate, up)]
        x = add(x, linear(inner, w[p + "mlp.down_proj.weight"]))
    return rms_norm(x, w["norm.weight"], c["rms_norm_eps"])


# --- weights ---------------------------------------------------------------------------------------------------------


def bf16(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def value(half):
    return struct.unpack("<f", struct.pack("<I", half << 16))[0]


def shapes():
    s = {"conv1.weight": (WIDTH, MELS, 3), "conv1.bias": (WIDTH,), "conv2.weight": (WIDTH, WIDTH, 3), "conv2.bias": (WIDTH,),
         "layer_norm.weight": (WIDTH,), "layer_norm.bias": (WIDTH,)}
    for i in range(LAYERS):
        p = f"layers.{i}."
        for m in ("q", "k", "v", "out"):
            s[f"{p}self_attn.{m}_proj.weight"] = (WIDTH, WIDTH)
            if m != "k":
                s[f"{p}self_attn.{m}_proj.bias"] = (WIDTH,)
        for m in ("self_attn_layer_norm", "final_layer_norm"):
            s[f"{p}{m}.weight"] = s[f"{p}{m}.bias"] = (WIDTH,)
        s |= {p + "fc1.weight": (FF, WIDTH), p + "fc1.bias": (FF,), p + "fc2.weight": (WIDTH, FF), p + "fc2.bias": (WIDTH,)}
    out = {"audio_tower." + k: v for k, v in s.items()}
    n, ff, q, kv = TEXT["hidden_size"], TEXT["intermediate_size"], TEXT["num_attention_heads"] * TEXT["head_dim"], TEXT["num_key_value_heads"] * TEXT["head_dim"]
    out |= {"multi_modal_projector.linear_1.weight": (n, FF), "multi_modal_projector.linear_2.weight": (n, n)}
    t = "language_model.model."
    out |= {t + "embed_tokens.weight": (TEXT["vocab_size"], n), t + "norm.weight": (n,), "language_model.lm_head.weight": (TEXT["vocab_size"], n)}
    for i in range(TEXT["num_hidden_layers"]):
        p = f"{t}layers.{i}."
        for m, shape in {"self_attn.q_proj": (q, n), "self_attn.k_proj": (kv, n), "self_attn.v_proj": (kv, n), "self_attn.o_proj": (n, q),
                         "mlp.gate_proj": (ff, n), "mlp.up_proj": (ff, n), "mlp.down_proj": (n, ff), "input_layernorm": (n,),
                         "post_attention_layernorm": (n,)}.items():
            out[f"{p}{m}.weight"] = shape
    return out


def nest(values, shape):
    if len(shape) == 1:
        return list(values)
    step = math.prod(shape[1:])
    return [nest(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def make_weights(path, seed):
    rng, parts, head, out, at = random.Random(seed), [], {}, {}, 0
    listed = shapes()
    listed["audio_tower.embed_positions.weight"] = (POSITIONS, WIDTH)
    for name, shape in listed.items():
        n = math.prod(shape)
        if "norm" in name and name.endswith(".weight"):
            values = [rng.gauss(1, 0.1) for _ in range(n)]
        elif name.endswith("positions.weight"):  # sines and cosines, kept as f32 by the published files
            half = WIDTH // 2
            rates = [math.exp(-math.log(10000) * i / (half - 1)) for i in range(half)]
            values = [f(p * r) for p in range(POSITIONS) for f in (math.sin, math.cos) for r in rates]
        else:
            fan = math.prod(shape[1:]) if len(shape) > 1 else 25
            values = [rng.gauss(0, 1 if "embed_tokens" in name else 1.2 / math.sqrt(fan)) for _ in range(n)]
        if name.endswith("positions.weight"):
            kind, data = "F32", array.array("f", values).tobytes()
            kept = list(array.array("f", data))
        else:
            halves = [bf16(v) for v in values]
            kind, data, kept = "BF16", struct.pack(f"<{n}H", *halves), [value(h) for h in halves]
        head[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        parts.append(data)
        out[name] = nest(kept, shape)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(parts))
    return out


def under(weights, root):
    return {k[len(root):]: v for k, v in weights.items() if k.startswith(root)}


# --- all of it -------------------------------------------------------------------------------------------------------


def write_config(folder):
    config = {"architectures": ["VoxtralForConditionalGeneration"], "model_type": "voxtral", "audio_token_id": AUDIO, "projector_hidden_act": "gelu",
              "audio_config": {"model_type": "voxtral_encoder", "activation_function": "gelu", "hidden_size": WIDTH, "intermediate_size": FF,
                               "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": WIDTH // HEADS,
                               "num_mel_bins": MELS, "max_source_positions": POSITIONS, "scale_embedding": False, "vocab_size": 51866},
              "text_config": {"model_type": "llama", "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, **TEXT},
              "hidden_size": TEXT["hidden_size"], "vocab_size": TEXT["vocab_size"]}
    pre = {"feature_extractor_type": "WhisperFeatureExtractor", "processor_class": "VoxtralProcessor", "feature_size": MELS, "sampling_rate": RATE,
           "n_fft": WINDOW, "hop_length": HOP, "chunk_length": 30, "padding_value": 0.0, "return_attention_mask": False}
    for name, what in (("config.json", config), ("preprocessor_config.json", pre)):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(what, f, indent=1)
            f.write("\n")


def deviation(rows):
    flat = [x for r in rows for x in r]
    mean = math.fsum(flat) / len(flat)
    return math.sqrt(math.fsum((x - mean) ** 2 for x in flat) / len(flat))


def main():
    out = sys.argv[1]
    folder = os.path.join(out, "voxtral")
    os.makedirs(folder, exist_ok=True)
    sounds = make_sounds(os.path.join(out, "sounds"))
    write_config(folder)
    w = make_weights(os.path.join(folder, "model.safetensors"), 23)
    tower, projector, text = under(w, "audio_tower."), under(w, "multi_modal_projector."), under(w, "language_model.model.")
    doc, mels, rows, logits = {"audio_token": AUDIO, "begin_token": BEGIN, "last": LAST, "sounds": {}, "cases": []}, array.array("f"), {}, array.array("f")
    all_rows = array.array("f")
    for name, samples in sounds.items():
        spectrum, made = powers(samples), {}
        for bins in (MELS, 80, 128) if name == "a" else (MELS,):
            mel = log_mel(spectrum, bins)
            made[str(bins)] = len(mels)
            mels.extend(v for r in mel for v in r)
            if bins == MELS:
                mine = mel
        rows[name] = []
        for at in range(0, len(mine), 2 * POSITIONS):
            x = encoder(mine[at : at + 2 * POSITIONS], tower)
            stacked = [sum(x[i : i + FF // WIDTH], []) for i in range(0, POSITIONS, FF // WIDTH)]
            rows[name] += linear(gelu(linear(stacked, projector["linear_1.weight"])), projector["linear_2.weight"])
        doc["sounds"][name] = {"frames": len(mine), "mel_at": made, "rows_at": len(all_rows), "rows": len(rows[name]), "std": deviation(rows[name])}
        all_rows.extend(v for r in rows[name] for v in r)
    rng = random.Random(5)
    for names in CASES:
        tokens, x = [], []
        for name in names:
            words = [rng.randrange(3, 140) for _ in range(5)] + [BEGIN]
            tokens += words + [AUDIO] * len(rows[name])
            x += [text["embed_tokens.weight"][t] for t in words] + rows[name]
        words = [rng.randrange(3, 140) for _ in range(6)]
        tokens += words
        x += [text["embed_tokens.weight"][t] for t in words]
        y = linear(language(x, text)[-LAST:], w["language_model.lm_head.weight"])
        doc["cases"].append({"sounds": names, "tokens": tokens, "logits_at": len(logits), "std": deviation(y)})
        logits.extend(v for r in y for v in r)
    for name, what in (("mel.f32", mels), ("rows.f32", all_rows), ("logits.f32", logits)):
        with open(os.path.join(folder, name), "wb") as f:
            what.tofile(f)
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump(doc, f)
        f.write("\n")


main()
