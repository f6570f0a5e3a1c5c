#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tiny reference models that hear, and what transformers makes of short sounds.

Families that are kin to Whisper's are in hearing_kin.py. For every family: a config.json and preprocessor_config.json in the style of the published checkpoints, random weights
saved as bf16 safetensors, loaded again as float32 and run on the CPU with eager attention. A piece of sound is 0.4 s long for
Voxtral instead of 30 s.

  hearing.py SOUNDS OUT [FAMILY ...]

SOUNDS has a.wav, b.wav and c.wav, which sound.py made. OUT receives hearing.tar.gz:
  sounds/NAME.wav      d: the shortest sound of which Gemma 4 makes a row; e: one and a half seconds
  FAMILY/config.json, preprocessor_config.json, model.safetensors
  FAMILY/golden.json   cases: sounds, tokens and where the values begin in the files below; spectra of single sounds
  FAMILY/mel.f32       [frames][bins] per sound, for the model's bins and for 128
  FAMILY/rows.f32      the rows that take the places of the audio tokens
  FAMILY/logits.f32    of the last positions
"""

import os
import sys

for _k, _v in {"CUDA_VISIBLE_DEVICES": "", "USE_HUB_KERNELS": "NO", "HF_HUB_OFFLINE": "1",
               "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}.items():
    os.environ[_k] = _v

import inspect
import json
import random
import shutil
import tarfile
import tempfile
import traceback
import wave

import numpy as np
import torch

import generate
from hearing_kin import KIN

RATE = 16000
VOCAB, AUDIO, BEGIN, END = 160, 150, 151, 152
LAST = 8  # positions whose logits are kept
BINS = 16
PIECE = 20  # positions of Voxtral's tower: 40 frames, 6400 samples
CASES = [["a"], ["b"], ["d"], ["e"], ["c", "a"]]

TEXT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 16, "vocab_size": VOCAB, "max_position_embeddings": 512,
        "tie_word_embeddings": False}

FAMILIES = {
    "voxtral": ({
        "architectures": ["VoxtralForConditionalGeneration"], "model_type": "voxtral", "audio_token_id": AUDIO,
        "projector_hidden_act": "gelu", "hidden_size": 32, "vocab_size": VOCAB,
        "audio_config": {"model_type": "voxtral_encoder", "activation_function": "gelu", "hidden_size": 32, "intermediate_size": 128,
                         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8, "num_mel_bins": BINS,
                         "max_source_positions": PIECE, "scale_embedding": False, "vocab_size": 51866},
        "text_config": dict(TEXT, model_type="llama", hidden_act="silu", rms_norm_eps=1e-5, rope_theta=100000000.0, attention_bias=False,
                            mlp_bias=False),
    }, {"feature_extractor_type": "WhisperFeatureExtractor", "processor_class": "VoxtralProcessor", "feature_size": BINS, "sampling_rate": RATE,
        "n_fft": 400, "hop_length": 160, "chunk_length": 30, "padding_value": 0.0, "return_attention_mask": False}),
    "gemma4": ({
        "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "image_token_id": 154, "boi_token_id": 155,
        "eoi_token_id": 156, "audio_token_id": AUDIO, "boa_token_id": BEGIN, "eoa_token_index": END, "video_token_id": 157,
        "tie_word_embeddings": True, "vision_soft_tokens_per_image": 70,
        "text_config": dict(TEXT, model_type="gemma4_text", sliding_window=24, rms_norm_eps=1e-6, tie_word_embeddings=True, num_hidden_layers=4,
                            layer_types=["sliding_attention", "full_attention"] * 2, hidden_activation="gelu_pytorch_tanh",
                            hidden_size_per_layer_input=16, vocab_size_per_layer_input=VOCAB, num_kv_shared_layers=2, global_head_dim=32,
                            use_bidirectional_attention=None, use_double_wide_mlp=True, enable_moe_block=False, attention_k_eq_v=False,
                            final_logit_softcapping=30.0,
                            rope_parameters={"full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0,
                                                                "rope_type": "proportional"},
                                             "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}),
        "vision_config": {"model_type": "gemma4_vision", "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 1,
                          "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "patch_size": 4, "pooling_kernel_size": 3,
                          "position_embedding_size": 64, "use_clipped_linears": True, "standardize": False, "rms_norm_eps": 1e-6,
                          "hidden_activation": "gelu_pytorch_tanh"},
        "audio_config": {"model_type": "gemma4_audio", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_act": "silu",
                         "subsampling_conv_channels": [BINS, 8], "conv_kernel_size": 5, "residual_weight": 0.5, "attention_chunk_size": 12,
                         "attention_context_left": 13, "attention_context_right": 0, "attention_logit_cap": 50.0,
                         "attention_invalid_logits_value": -1e9, "use_clipped_linears": True, "rms_norm_eps": 1e-6,
                         "gradient_clipping": 1e10, "output_proj_dims": 48},
    }, {"feature_extractor_type": "Gemma4AudioFeatureExtractor", "processor_class": "Gemma4Processor", "feature_size": BINS, "sampling_rate": RATE,
        "frame_length_ms": 20.0, "hop_length_ms": 10.0, "min_frequency": 0.0, "max_frequency": 8000.0, "preemphasis": 0.0,
        "preemphasis_htk_flavor": True, "fft_overdrive": False, "dither": 0.0, "input_scale_factor": 1.0, "mel_floor": 0.001,
        "per_bin_mean": None, "per_bin_stddev": None, "padding_value": 0.0, "return_attention_mask": True}),
}


# The 12B, without an encoder: so many samples are a row.
UNIFIED = json.loads(json.dumps(FAMILIES["gemma4"][0]))
UNIFIED.update(architectures=["Gemma4UnifiedForConditionalGeneration"], model_type="gemma4_unified",
               audio_config={"model_type": "gemma4_unified_audio", "audio_embed_dim": 320, "rms_norm_eps": 1e-6},
               vision_config={"model_type": "gemma4_unified_vision", "patch_size": 4, "pooling_kernel_size": 1, "mm_embed_dim": 32,
                              "mm_posemb_size": 8, "output_proj_dims": 32, "rms_norm_eps": 1e-6})
UNIFIED["text_config"].update(model_type="gemma4_unified_text", num_kv_shared_layers=0, use_double_wide_mlp=False, num_hidden_layers=2,
                              layer_types=["sliding_attention", "full_attention"])
for _k in ("hidden_size_per_layer_input", "vocab_size_per_layer_input", "enable_moe_block"):
    del UNIFIED["text_config"][_k]
FAMILIES["gemma4_unified"] = (UNIFIED, {"feature_extractor_type": "Gemma4UnifiedAudioFeatureExtractor", "processor_class": "Gemma4UnifiedProcessor",
                                        "feature_size": 320, "sampling_rate": RATE, "audio_samples_per_token": 320, "padding_value": 0.0})


# --- sounds ----------------------------------------------------------------------------------------------------------


def write_sounds(folder):
    os.makedirs(folder)
    rng = np.random.default_rng(5)
    t = np.arange(25000) / RATE
    long = 0.3 * np.sin(2 * np.pi * (150 + 900 * t) * t) + 0.2 * np.sin(2 * np.pi * 2700 * t) * (t % 0.3 < 0.1) + rng.normal(0, 0.01, t.shape)
    for name, x in (("d", long[3000:3161]), ("e", long)):
        with wave.open(os.path.join(folder, name + ".wav"), "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(RATE)
            w.writeframes(np.round(x * 32767).clip(-32768, 32767).astype("<i2").tobytes())


def read_sound(folders, name):
    path = next(p for f in folders if os.path.exists(p := os.path.join(f, name + ".wav")))
    with wave.open(path, "rb") as w:
        n, width, data = w.getnchannels(), w.getsampwidth(), w.readframes(w.getnframes())
    raw = np.frombuffer(data, np.uint8).reshape(-1, width).astype(np.int64)
    x = sum(raw[:, i] << (8 * i) for i in range(width))
    x = np.where(x >= 1 << (8 * width - 1), x - (1 << (8 * width)), x) / float(1 << (8 * width - 1))
    return x.reshape(-1, n).mean(1).astype(np.float32)


# --- spectra ---------------------------------------------------------------------------------------------------------


def spectra(name, extractor, sounds):
    """What the tower gets for all sounds, and [frames][bins] of each."""
    if name == "voxtral":
        parts = []
        for x in sounds:
            f = extractor(x, sampling_rate=RATE, padding=True, truncation=False, pad_to_multiple_of=PIECE * 2 * 160, return_tensors="pt")
            parts.append(f["input_features"])
        one = [p[0].T.contiguous() for p in parts]
        whole = torch.cat([p.reshape(extractor.feature_size, -1, 2 * PIECE).transpose(0, 1) for p in parts])
        return {"input_features": whole}, one
    f = extractor(sounds, return_tensors="pt")
    return dict(f), [x[m] for x, m in zip(f["input_features"], f["input_features_mask"])]


def features(name, model, args):
    owner = model if hasattr(model, "get_audio_features") else model.model
    got = owner.get_audio_features(**args)
    rows = getattr(got, "pooler_output", got)
    if name == "voxtral":
        return rows.reshape(-1, rows.shape[-1])
    return rows[got.attention_mask]


def take(name, extractor, model, sounds):
    """What the tower gets, the rows that come out, and how many of them each sound has."""
    if name in KIN:
        args, rows, counts = KIN[name].take(model, sounds)
        return args, rows.float(), counts
    args, one = spectra(name, extractor, sounds)
    return args, features(name, model, args).float(), [count_rows(name, int(f.shape[0])) for f in one]


def count_rows(name, frames):
    return frames if name == "gemma4_unified" else frames // 8 if name == "voxtral" else (frames + 3) // 4


# --- models ----------------------------------------------------------------------------------------------------------


def fill(name, model):
    seen = set()
    with torch.no_grad():
        for key, t in model.state_dict().items():
            if not t.is_floating_point() or (t.data_ptr() in seen and t.numel() > 1):
                continue
            seen.add(t.data_ptr())
            shape = tuple(t.shape)
            if key.endswith(("input_min", "output_min")):
                t.fill_(-1.6)
            elif key.endswith(("input_max", "output_max")):
                t.fill_(1.7)
            elif key.endswith("per_dim_scale"):
                t.copy_(0.5 * generate.noise(name, key, shape))
            elif "embed_positions" in key or "position_embedding" in key:
                t.copy_(0.4 * generate.noise(name, key, shape))
            elif key.endswith("embed_tokens.weight"):
                t.copy_(0.3 * generate.noise(name, key, shape))
            elif t.dim() > 2:
                t.copy_(1.5 * generate.noise(name, key, shape) / (t[0].numel() ** 0.5))
            else:
                t.copy_(generate.randomize(name, key, t, [], False))


def tokens_of(name, rng, counts):
    """Text, a sound, text, ... with the placeholders where the rows go."""
    ids = [2] + [rng.randrange(3, 148) for _ in range(3)]
    for n in counts:
        ids += [BEGIN] + [AUDIO] * n + ([END] if name.startswith("gemma4") else [])
        ids += [rng.randrange(3, 148) for _ in range(4)]
    return ids + [rng.randrange(3, 148) for _ in range(6)]


def run_case(name, model, extractor, names, folders, rng, files):
    sounds = [read_sound(folders, n) for n in names]
    with torch.no_grad():
        args, rows, counts = take(name, extractor, model, sounds)
    assert sum(counts) == rows.shape[0], (counts, rows.shape)
    ids = tokens_of(name, rng, counts)
    if args is None:  # there is no language model
        case = {"sounds": names, "counts": counts, "rows_at": len(files["rows.f32"]) // 4, "row_std": float(rows.std())}
        files["rows.f32"] += rows.contiguous().numpy().astype("<f4").tobytes()
        return case
    texts = KIN[name].texts if name in KIN else VOCAB
    if hasattr(KIN.get(name), "ask"):
        with torch.no_grad():
            ids, logits = KIN[name].ask(model, args, rng, counts, LAST - 1)
        return keep_case(names, counts, ids, rows, logits, texts, files)
    x = torch.tensor([KIN[name].prompt(ids, counts) if name in KIN else ids])
    ids = [AUDIO if a == AUDIO else b for a, b in zip(ids, x[0].tolist())]
    call = dict(args, input_ids=x, attention_mask=torch.ones_like(x), use_cache=False)
    if "mm_token_type_ids" in inspect.signature(type(model).forward).parameters:
        call["mm_token_type_ids"] = (x == AUDIO).long() * 3
    with torch.no_grad():
        logits = model(**call).logits[0].float()
    return keep_case(names, counts, ids, rows, logits, texts, files)


def keep_case(names, counts, ids, rows, logits, texts, files):
    assert torch.isfinite(logits).all() and torch.isfinite(rows).all()
    case = {"sounds": names, "counts": counts, "tokens": ids, "rows_at": len(files["rows.f32"]) // 4, "row_std": float(rows.std()),
            "logits_at": len(files["logits.f32"]) // 4, "logit_std": float(logits[:, :texts].std())}
    files["rows.f32"] += rows.contiguous().numpy().astype("<f4").tobytes()
    files["logits.f32"] += logits[-LAST:, :texts].contiguous().numpy().astype("<f4").tobytes()
    return case


def save(name, cls, config, outdir):
    model = cls._from_config(config, dtype=torch.float32, attn_implementation="eager")
    fill(name, model)
    model.to(torch.bfloat16)
    tmp = tempfile.mkdtemp()
    try:
        model.save_pretrained(tmp)
        tensors = generate.st_read(os.path.join(tmp, "model.safetensors"))
    finally:
        shutil.rmtree(tmp)
    # As published; transformers 5.17 saves Voxtral's language model under a name with one "model." too many.
    tensors = {k.replace("language_model.model.model.", "language_model.model."): v for k, v in tensors.items()}
    generate.st_write(os.path.join(outdir, "model.safetensors"), tensors, {"format": "pt"})
    print("  ", name, "tensors:", " ".join(f"{k}{list(v.shape)}" for k, v in sorted(tensors.items()) if ".1." not in k and ".2." not in k))


def extractor_of(pre, bins):
    import transformers

    fields = {k: v for k, v in pre.items() if k not in ("feature_extractor_type", "processor_class")}
    return getattr(transformers, pre["feature_extractor_type"])(**dict(fields, feature_size=bins))


def make(name, outdir, folders):
    import transformers
    from transformers import AutoConfig

    kin = KIN.get(name)
    config, pre = (kin.config, kin.pre) if kin else FAMILIES[name]
    os.makedirs(outdir)
    generate.write_config(outdir, config)
    with open(os.path.join(outdir, "preprocessor_config.json"), "w") as f:
        json.dump(pre, f, indent=2)
        f.write("\n")
    torch.manual_seed(1)
    if kin:
        kin.save(name, outdir, fill)
        model = kin.load(outdir)
    else:
        cls = getattr(transformers, config["architectures"][0])
        save(name, cls, AutoConfig.from_pretrained(outdir), outdir)
        model, info = cls.from_pretrained(outdir, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        if info.get("missing_keys") or info.get("unexpected_keys"):
            raise ValueError(f"loading again: {info}")
    model.eval()
    if name == "gemma4":  # it reads the mask of eager attention (0 where a row sees) as if it were one of booleans
        model.model.audio_tower.config._attn_implementation = "sdpa"
    files = {k: bytearray() for k in ("mel.f32", "rows.f32", "logits.f32")}
    rng = random.Random(name)
    doc = {"family": name, "vocab": kin.texts if kin else VOCAB, "audio_token": AUDIO, "last": LAST, "versions": generate.versions(), "spectra": [], "cases": []}
    for bins, names in () if name == "gemma4_unified" else ((BINS, "ae"),) if kin else ((BINS, "abcde"), (128, "ae")):
        for n in names:
            x = read_sound(folders, n)
            f = kin.spectrum(x, bins) if kin else spectra(name, extractor_of(pre, bins), [x])[1][0]
            doc["spectra"].append({"sound": n, "bins": bins, "frames": int(f.shape[0]), "at": len(files["mel.f32"]) // 4, "std": float(f.std())})
            files["mel.f32"] += f.float().contiguous().numpy().astype("<f4").tobytes()
    for names in getattr(kin, "cases", CASES):
        try:
            doc["cases"].append(run_case(name, model, None if kin else extractor_of(pre, pre["feature_size"]), names, folders, rng, files))
        except Exception:
            print("   case", names)
            traceback.print_exc()
    if hasattr(kin, "dictate"):
        from hearing_kin import GENERATION

        with torch.no_grad():
            doc["dictations"] = kin.dictate(model, lambda n: read_sound(folders, n))
        with open(os.path.join(outdir, "generation_config.json"), "w") as f:
            json.dump(GENERATION, f, indent=2)
            f.write("\n")
    for k, v in files.items():
        if not v:
            continue
        with open(os.path.join(outdir, k), "wb") as f:
            f.write(v)
    with open(os.path.join(outdir, "golden.json"), "w") as f:
        json.dump(doc, f)
        f.write("\n")
    print("  ", name, [(c["sounds"], c["counts"], c["row_std"], c.get("logit_std")) for c in doc["cases"]], doc["spectra"])


def main():
    given, out, wanted = sys.argv[1], sys.argv[2], sys.argv[3:] or list(FAMILIES) + list(KIN)
    root = tempfile.mkdtemp()
    write_sounds(os.path.join(root, "sounds"))
    for name in wanted:
        try:
            make(name, os.path.join(root, name), [given, os.path.join(root, "sounds")])
        except Exception:
            print("FAILED", name)
            traceback.print_exc()
        sys.stdout.flush()
        with tarfile.open(os.path.join(out, "hearing.tar.gz"), "w:gz") as t:
            for n in sorted(os.listdir(root)):
                t.add(os.path.join(root, n), n)
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
