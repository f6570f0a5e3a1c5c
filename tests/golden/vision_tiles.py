# SPDX-License-Identifier: Apache-2.0
"""Families of vision.py whose image processors have no class that uses Pillow: torchvision_pillow.py stands in for torchvision.

Sizes, tiles and the words around the rows are the processors' own. They are run twice: without scaling of colours, for the
bytes of the tiles, and with it, for the tower.
"""

import types

import numpy as np
import torch

PLAIN = {"do_rescale": False, "do_normalize": False}


def words(cls, attributes, fields, **more):
    """What a processor puts in the place of one picture's placeholder."""
    own = types.SimpleNamespace(**attributes)
    for name in dir(cls):
        if name.startswith("_") and not name.startswith("__") and callable(getattr(cls, name)):
            try:
                setattr(own, name, types.MethodType(getattr(cls, name), own))
            except TypeError:
                pass
    return cls.replace_image_token(own, fields, 0, **more)


def joined(parts, key):
    return torch.cat([p[key] for p in parts])


# --- Llama 4

def short_colours(x, proc):
    """What rescale_and_normalize makes of bytes, in bfloat16. Torch before 2.0 rounds the factor, too; later ones do not."""
    from torchvision.transforms.v2 import functional

    x = (x.float() * torch.tensor(proc.rescale_factor, dtype=torch.float32)).to(torch.bfloat16)
    return functional.normalize(x, proc.image_mean, proc.image_std)


def run_llama4(spec, proc, pictures):
    from transformers.models.llama4.processing_llama4 import Llama4Processor

    tiles, text, parts = [], [], []
    for p in pictures:
        raw = proc(images=[p], return_tensors="pt", **PLAIN)
        tiles.append([t.permute(1, 2, 0).contiguous().numpy() for t in raw["pixel_values"].to(torch.uint8)])
        own = {"patch_size": spec["config"]["vision_config"]["patch_size"], "downsample_ratio": 4}
        text.append(words(Llama4Processor, own, {"pixel_values": raw["pixel_values"],
                                                 "aspect_ratios": raw["aspect_ratios"].tolist()}))
        bytes_of = raw["pixel_values"].to(torch.uint8)
        parts.append(short_colours(bytes_of, proc))
    return {"pixel_values": torch.cat(parts).float()}, tiles, text


def rows_llama4(model, out):
    got = model.get_image_features(pixel_values=out["pixel_values"], vision_feature_select_strategy="default",
                                   return_dict=True).last_hidden_state
    return model.multi_modal_projector(got.reshape(-1, got.shape[-1]))


# --- LFM2-VL

def unpatch(rows, h, w, p):
    return rows[: h * w].view(h, w, p, p, 3).permute(0, 2, 1, 3, 4).reshape(h * p, w * p, 3)


def run_lfm2(spec, proc, pictures):
    from transformers.models.lfm2_vl.processing_lfm2_vl import Lfm2VlProcessor

    tiles, text, parts = [], [], []
    for p in pictures:
        raw = proc(images=[[p]], return_tensors="pt", return_row_col_info=True, **PLAIN)
        shapes = raw["spatial_shapes"].tolist()
        tiles.append([unpatch(x, h, w, proc.encoder_patch_size).to(torch.uint8).numpy()
                      for x, (h, w) in zip(raw["pixel_values"], shapes)])
        own = {"image_processor": proc, "image_token": "<image>", "image_start_token": "<|image_start|>",
               "image_end_token": "<|image_end|>", "image_thumbnail_token": "<|img_thumbnail|>"}
        text.append(words(Lfm2VlProcessor, own, raw, use_image_special_tokens=True))
        parts.append(proc(images=[[p]], return_tensors="pt"))
    return {k: joined(parts, k) for k in ("pixel_values", "spatial_shapes", "pixel_attention_mask")}, tiles, text


def rows_lfm2(model, out):
    return torch.cat(model.get_image_features(**out, return_dict=True).pooler_output)


# --- Kimi K2.5 and Kimi VL

def run_kimi(spec, proc, pictures):
    from transformers.models.kimi_k25.processing_kimi_k25 import Kimi_K25Processor

    tiles, text, parts = [], [], []
    for p in pictures:
        raw = proc(images=[p], return_tensors="pt", **PLAIN)
        _, h, w = raw["image_grid_thw"][0].tolist()
        n = proc.patch_size
        x = raw["pixel_values"].view(h, w, 3, n, n).permute(0, 3, 1, 4, 2).reshape(h * n, w * n, 3)
        tiles.append([x.to(torch.uint8).contiguous().numpy()])
        own = {"image_processor": proc, "image_token": "<|media_pad|>"}
        text.append(words(Kimi_K25Processor, own, raw))
        parts.append(proc(images=[p], return_tensors="pt"))
    return {k: joined(parts, k) for k in ("pixel_values", "image_grid_thw")}, tiles, text


def rows_kimi(model, out):
    return torch.cat(model.model.get_image_features(**out, return_dict=True).pooler_output)


def run_kimi_vl(spec, proc, pictures):
    """As the published processor has it: never larger, within a number of patches, then up to whole squares, black."""
    import math

    tiles, text, pixels, grids = [], [], [], []
    pre = spec["processor"]
    n, limit = pre["patch_size"], pre["in_token_limit"]
    for p in pictures:
        w, h = p.size
        if (w // n) * (h // n) > limit:
            scale = math.sqrt(limit / ((w // n) * (h // n)))
            p = p.resize((int(w * scale), int(h * scale)), 3)
        x = np.asarray(p)
        x = np.pad(x, [(0, -x.shape[0] % (2 * n)), (0, -x.shape[1] % (2 * n)), (0, 0)])
        tiles.append([x])
        h, w = x.shape[0] // n, x.shape[1] // n
        text.append("<|media_pad|>" * (h * w // 4))
        t = (torch.from_numpy(x.copy()).float() / 255 - 0.5) / 0.5
        pixels.append(t.view(h, n, w, n, 3).permute(0, 2, 4, 1, 3).reshape(h * w, 3, n, n))
        grids.append([1, h, w])
    return {"pixel_values": torch.cat(pixels), "image_grid_thw": torch.tensor(grids)}, tiles, text


# --- MiniCPM-V 4.6

def run_minicpm(spec, proc, pictures):
    from transformers.models.minicpmv4_6.processing_minicpmv4_6 import MiniCPMV4_6Processor

    tiles, text, pixels, sizes = [], [], [], []
    n = proc.patch_size
    for i, p in enumerate(pictures):
        raw = proc(images=[p], return_tensors="pt", **PLAIN)
        rows, own = raw["pixel_values"][0].permute(2, 0, 1).reshape(-1, n, 3, n), []
        at = 0
        for h, w in raw["target_sizes"].tolist():
            x = rows[at : at + h * w].view(h, w, n, 3, n).permute(0, 4, 1, 2, 3).reshape(h * n, w * n, 3)
            own.append(x.to(torch.uint8).contiguous().numpy())
            at += h * w
        tiles.append(own)
        fields = dict(raw, target_sizes=raw["target_sizes"].numpy())
        names = {"image_token": "<|image_pad|>", "image_start_token": "<image>", "image_end_token": "</image>",
                 "slice_start_token": "<slice>", "slice_end_token": "</slice>", "slice_mode": proc.slice_mode}
        text.append(f"<image_id>{i}</image_id>" + words(MiniCPMV4_6Processor, names, fields, image_token_divisor=16))
        out = proc(images=[p], return_tensors="pt")
        pixels.append(out["pixel_values"])
        sizes.append(out["target_sizes"])
    return {"pixel_values": torch.cat(pixels, -1), "target_sizes": torch.cat(sizes).long()}, tiles, text


def rows_minicpm(model, out):
    """Tile by tile: the reference's merger takes tiles of one size only."""
    parts, at = [], 0
    patch = model.config.vision_config.patch_size
    for size in out["target_sizes"]:
        n = int(size.prod()) * patch
        parts += model.model.get_image_features(out["pixel_values"][..., at : at + n], size[None]).pooler_output
        at += n
    return torch.cat(parts)


# --- MiniCPM-V 2.6

def waves(dim, h, w):
    """Of columns, then of rows: sines and cosines of dim / 4 frequencies each."""
    omega = 1.0 / 10000 ** (torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    x, y = (torch.outer(torch.arange(n, dtype=torch.float64), omega) for n in (w, h))
    x, y = (torch.cat([a.sin(), a.cos()], -1) for a in (x, y))
    return torch.cat([x[None].expand(h, -1, -1), y[:, None].expand(-1, w, -1)], -1).reshape(h * w, dim).float()


def build_minicpm_2(spec):
    """The parts under the names of the published code: SigLIP with the positions of MiniCPM-V (as 4.6 has them), a resampler
    written after the published one, and Qwen 2."""
    from torch import nn
    from transformers import Qwen2Config, Qwen2ForCausalLM
    from transformers.models.minicpmv4_6.configuration_minicpmv4_6 import MiniCPMV4_6VisionConfig
    from transformers.models.minicpmv4_6.modeling_minicpmv4_6 import MiniCPMV4_6VisionModel

    c = spec["config"]
    n, v = c["hidden_size"], {k: x for k, x in c["vision_config"].items() if k != "model_type"}

    class Resampler(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = nn.Parameter(torch.zeros(c["query_num"], n))
            self.kv_proj = nn.Linear(v["hidden_size"], n, bias=False)
            self.attn = nn.MultiheadAttention(n, n // 128)
            self.ln_q, self.ln_kv, self.ln_post = (nn.LayerNorm(n, eps=1e-6) for _ in range(3))
            self.proj = nn.Parameter(torch.zeros(n, n))

        def forward(self, x, h, w):
            x = self.ln_kv(self.kv_proj(x))
            seen = self.attn(self.ln_q(self.query), x + waves(n, h, w), x)[0]
            return self.ln_post(seen) @ self.proj

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.vpm = MiniCPMV4_6VisionModel._from_config(MiniCPMV4_6VisionConfig(**v), attn_implementation="eager")
            self.resampler = Resampler()
            self.llm = Qwen2ForCausalLM._from_config(Qwen2Config(**{k: c[k] for k in c if k not in (
                "architectures", "model_type", "vision_config")}), attn_implementation="eager")

        def get_input_embeddings(self):
            return self.llm.get_input_embeddings()

        def forward(self, inputs_embeds, attention_mask, use_cache):
            return self.llm(inputs_embeds=inputs_embeds, attention_mask=attention_mask, use_cache=use_cache)

    return Model()


def run_minicpm_2(spec, proc, pictures):
    """Tiles as 4.6 makes them, in steps of a patch."""
    from transformers import MiniCPMV4_6ImageProcessorPil

    pre, q = spec["processor"], spec["config"]["query_num"]
    n, scale, most = pre["patch_size"], pre["scale_resolution"], pre["max_slice_nums"]
    proc = MiniCPMV4_6ImageProcessorPil()
    tiles, text, pixels, sizes = [], [], [], []
    for i, p in enumerate(pictures):
        size = (p.height, p.width)
        grid = proc.get_sliced_grid(size, most, scale)
        h, w = proc.find_best_resize(size, scale, n // 4, allow_upscale=grid is None)
        own = [np.asarray(p.resize((w, h), 3))]
        words = f"<image_id>{i}</image_id><image>" + "<unk>" * q + "</image>"
        if grid is not None:
            h, w = proc.get_refine_size(size, grid, scale, n // 4, allow_upscale=True)
            all, (rows, cols) = np.asarray(p.resize((w, h), 3)), grid
            own += [t for row in np.split(all, rows) for t in np.split(row, cols, axis=1)]
            words += "\n".join([("<slice>" + "<unk>" * q + "</slice>") * cols] * rows)
        tiles.append([np.ascontiguousarray(t) for t in own])
        text.append(words)
        for t in own:
            h, w = t.shape[0] // n, t.shape[1] // n
            x = (torch.from_numpy(t.copy()).float() / 255 - 0.5) / 0.5
            pixels.append(x.view(h, n, w, n, 3).permute(4, 1, 0, 2, 3).reshape(1, 3, n, h * w * n))
            sizes.append([h, w])
    return {"tiles": pixels, "sizes": sizes}, tiles, text


def rows_minicpm_2(model, out):
    return torch.cat([model.resampler(model.vpm(x, target_sizes=torch.tensor([s]), use_vit_merger=False).last_hidden_state[0], *s)
                      for x, s in zip(out["tiles"], out["sizes"])])


# --- Ovis 2

OVIS_WORDS = ["<IMG_ATOM>", "<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>"]


def run_ovis2(spec, proc, pictures):
    """All words of a picture stand for rows: those that part its tiles, too, whose rows are the last of the visual table."""
    import re

    from transformers.models.ovis2.processing_ovis2 import Ovis2Processor

    tiles, text, said, parts = [], [], [], []
    for p in pictures:
        raw = proc(images=[p], return_tensors="pt", **PLAIN)
        tiles.append([t.permute(1, 2, 0).contiguous().numpy() for t in raw["pixel_values"].to(torch.uint8)])
        own = words(Ovis2Processor, {"image_seq_length": spec["per_tile"]}, raw)
        said.append(re.findall("<[^>]*>", own))
        text.append(OVIS_WORDS[0] * len(said[-1]))
        parts.append(proc(images=[p], return_tensors="pt")["pixel_values"])
    return {"pixel_values": torch.cat(parts), "said": [w for own in said for w in own]}, tiles, text


def rows_ovis2(model, out):
    got = model.model.get_image_features(pixel_values=out["pixel_values"], return_dict=True)
    rows, marks = list(got.pooler_output.reshape(-1, got.pooler_output.shape[-1])), got.visual_indicator_features
    all = torch.stack([rows.pop(0) if w == OVIS_WORDS[0] else marks[OVIS_WORDS.index(w) - 1] for w in out["said"]])
    assert not rows
    # The same that the model itself puts in the places of those words.
    ids = torch.tensor([[3, 4] + [150 + OVIS_WORDS.index(w) for w in out["said"]] + [5, 6]])
    embedded = model.get_input_embeddings()(ids)
    embedded[0, 2:-2] = all
    own = model(input_ids=ids, pixel_values=out["pixel_values"], use_cache=False).logits
    assert torch.allclose(own, model(inputs_embeds=embedded, use_cache=False).logits, atol=1e-5)
    return all


def as_kimi_k25(outdir):
    """The published names, which transformers makes of its own in some places only."""
    import os

    import generate

    path = os.path.join(outdir, "model.safetensors")
    named = {}
    for k, t in generate.st_read(path).items():
        k = k.replace("language_model.model.blocks.", "language_model.model.layers.")
        k = k.replace("vision_tower.encoder.patch_embed.", "vision_tower.patch_embed.")
        named[k.replace("model.mm_projector.", "mm_projector.")] = t
    generate.st_write(path, named, {"format": "pt"})


def as_kimi_vl(outdir):
    """The files of a Kimi K2.5 under the names of a Kimi VL, whose tower and projector compute the same."""
    import json
    import os

    import generate

    as_kimi_k25(outdir)
    path = os.path.join(outdir, "model.safetensors")
    named = {}
    for k, t in generate.st_read(path).items():
        k = k.replace("mm_projector.proj.0", "multi_modal_projector.linear_1")
        k = k.replace("mm_projector.proj.2", "multi_modal_projector.linear_2")
        named[k.replace("mm_projector.pre_norm", "multi_modal_projector.pre_norm")] = t
    generate.st_write(path, named, {"format": "pt"})
    path = os.path.join(outdir, "config.json")
    with open(path) as f:
        c = json.load(f)
    v = c["vision_config"]
    c.update(architectures=["KimiVLForConditionalGeneration"], model_type="kimi_vl", media_placeholder_token_id=c.pop("image_token_id"))
    v.update(model_type="moonvit", init_pos_emb_height=v.pop("pos_emb_height"), init_pos_emb_width=v.pop("pos_emb_width"))
    for k in ("projection_hidden_size", "projection_layer_norm_eps", "video_token_id", "vision_start_token_id", "vision_end_token_id"):
        c.pop(k, None)
    for k in ("pos_emb_time", "hidden_act"):
        v.pop(k, None)
    with open(path, "w") as f:
        json.dump(c, f, indent=2)
        f.write("\n")


def add(family, TEXT, HALF, USUAL, IMAGE):
    family("llama4", {
        "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "boi_token_index": 151,
        "eoi_token_index": 152, "image_token_index": IMAGE, "tie_word_embeddings": False,
        "text_config": dict(TEXT, model_type="llama4_text", num_hidden_layers=4, rms_norm_eps=1e-5, hidden_act="silu",
                            intermediate_size=24, intermediate_size_mlp=48, num_local_experts=3, num_experts_per_tok=1,
                            interleave_moe_layer_step=2, attention_chunk_size=48, no_rope_layers=[1, 1, 1, 0],
                            attn_temperature_tuning=True, attn_scale=0.1, floor_scale=32, use_qk_norm=True,
                            attention_bias=False, rope_theta=500000.0, rope_scaling={
                                "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                "original_max_position_embeddings": 64, "rope_type": "llama3"}),
        "vision_config": {"model_type": "llama4_vision_model", "hidden_size": 32, "intermediate_size": 128,
                          "num_hidden_layers": 2, "num_attention_heads": 2, "num_channels": 3, "image_size": 32,
                          "patch_size": 8, "hidden_act": "gelu", "norm_eps": 1e-5, "pixel_shuffle_ratio": 0.5,
                          "projector_input_dim": 40, "projector_output_dim": 40, "vision_output_dim": 40,
                          "multi_modal_projector_bias": False, "projector_dropout": 0.0, "rope_theta": 10000,
                          "vision_feature_layer": -1, "vision_feature_select_strategy": "default"},
    }, dict(USUAL, **HALF, image_processor_type="Llama4ImageProcessorFast", size={"height": 32, "width": 32},
            max_patches=16, resize_to_max_canvas=False, do_convert_rgb=True, resample=2), "Llama4ImageProcessor",
        run=run_llama4, rows=rows_llama4, word="<|patch|>")

    family("lfm2_vl", {
        "architectures": ["Lfm2VlForConditionalGeneration"], "model_type": "lfm2_vl", "image_token_id": IMAGE,
        "do_image_splitting": True, "downsample_factor": 2, "encoder_patch_size": 4, "max_image_tokens": 8,
        "max_num_patches": 64, "max_pixels_tolerance": 2.0, "max_tiles": 4, "min_image_tokens": 4, "min_tiles": 2,
        "projector_bias": True, "projector_hidden_act": "gelu", "projector_hidden_size": 48,
        "projector_use_layernorm": True, "tile_size": 16, "tie_word_embeddings": True, "use_image_special_tokens": True,
        "use_thumbnail": True, "vision_feature_layer": -1,
        "text_config": {"model_type": "lfm2", "architectures": ["Lfm2ForCausalLM"], "hidden_size": 32, "block_dim": 32,
                        "block_ff_dim": 96, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0,
                        "block_mlp_init_scale": 1.0, "block_multiple_of": 16, "block_norm_eps": 1e-5,
                        "block_use_swiglu": True, "block_use_xavier_init": True, "conv_L_cache": 3, "conv_bias": False,
                        "conv_dim": 32, "conv_dim_out": 32, "conv_use_xavier_init": True, "eos_token_id": 7,
                        "layer_types": ["conv", "full_attention"], "num_hidden_layers": 2, "num_attention_heads": 2,
                        "num_key_value_heads": 1, "num_heads": 2, "norm_eps": 1e-5, "rope_theta": 1000000.0,
                        "max_position_embeddings": 512, "vocab_size": TEXT["vocab_size"], "use_pos_enc": True},
        "vision_config": {"model_type": "siglip2_vision_model", "hidden_size": 32, "intermediate_size": 56,
                          "num_hidden_layers": 2, "num_attention_heads": 2, "num_channels": 3, "num_patches": 16,
                          "patch_size": 4, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
                          "vision_use_head": False, "attention_dropout": 0.0},
    }, dict(USUAL, **HALF, image_processor_type="Lfm2VlImageProcessorFast", size={"height": 16, "width": 16},
            do_image_splitting=True, do_pad=True, downsample_factor=2, encoder_patch_size=4, max_image_tokens=8,
            max_num_patches=64, max_pixels_tolerance=2.0, max_tiles=4, min_image_tokens=4, min_tiles=2, tile_size=16,
            use_thumbnail=True, return_row_col_info=True, do_convert_rgb=True, resample=2), "Lfm2VlImageProcessor",
        run=run_lfm2, rows=rows_lfm2, word="<image>")

    kimi = {
        "architectures": ["Kimi_K25ForConditionalGeneration"], "model_type": "kimi_k25", "image_token_id": IMAGE,
        "video_token_id": 153, "vision_start_token_id": 151, "vision_end_token_id": 152, "projection_hidden_size": 32,
        "projection_layer_norm_eps": 1e-5, "tie_word_embeddings": False,
        "text_config": {"model_type": "deepseek_v3", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
                        "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": TEXT["vocab_size"],
                        "max_position_embeddings": 512, "kv_lora_rank": 16, "q_lora_rank": 16, "qk_nope_head_dim": 16,
                        "qk_rope_head_dim": 8, "v_head_dim": 16, "rms_norm_eps": 1e-5, "attention_bias": False,
                        "moe_intermediate_size": 16, "n_routed_experts": 4, "n_shared_experts": 1,
                        "num_experts_per_tok": 2, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
                        "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_group": 1, "topk_group": 1,
                        "topk_method": "noaux_tc", "scoring_func": "sigmoid", "num_nextn_predict_layers": 0,
                        "hidden_act": "silu", "rope_theta": 10000.0, "tie_word_embeddings": False},
        "vision_config": {"model_type": "kimi_k25_vision", "hidden_size": 32, "intermediate_size": 56,
                          "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 4, "pos_emb_height": 6,
                          "pos_emb_width": 6, "pos_emb_time": 4, "merge_kernel_size": [2, 2],
                          "hidden_act": "gelu_pytorch_tanh"},
    }
    family("kimi_k25", kimi, dict(
        USUAL, **HALF, image_processor_type="Kimi_K25ImageProcessor", max_patches=64, patch_size=4, merge_size=2,
        size={"max_height": 12, "max_width": 12}, do_convert_rgb=True, resample=3), "Kimi_K25ImageProcessor",
        run=run_kimi, rows=rows_kimi, word="<|media_pad|>", after=as_kimi_k25)
    family("kimi_vl", kimi, dict(HALF, in_token_limit=64, patch_size=4, num_pooled_tokens=1024, pad_input=True,
                                 image_processor_type="KimiVLImageProcessor"), None,
           run=run_kimi_vl, rows=rows_kimi, word="<|media_pad|>", after=as_kimi_vl)
    family("ovis2", {
        "architectures": ["Ovis2ForConditionalGeneration"], "model_type": "ovis2", "image_token_id": IMAGE,
        "visual_indicator_token_ids": [151, 152, 153, 154, 155], "vocab_size": TEXT["vocab_size"], "hidden_size": 32,
        "text_config": dict({k: TEXT[k] for k in TEXT if k != "head_dim"}, model_type="qwen2", rms_norm_eps=1e-6,
                            hidden_act="silu", rope_theta=1000000.0, tie_word_embeddings=True),
        "vision_config": {"model_type": "", "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
                          "num_attention_heads": 2, "num_channels": 3, "image_size": 32, "patch_size": 8,
                          "rms_norm_eps": 1e-5, "qkv_bias": False, "mlp_bias": False, "hidden_act": "silu",
                          "vocab_size": 69, "hidden_stride": 2, "num_visual_indicator_tokens": 5,
                          "tokenize_function": "softmax"},
    }, dict(USUAL, **HALF, image_processor_type="Ovis2ImageProcessor", size={"height": 32, "width": 32},
            crop_to_patches=True, min_patches=1, max_patches=9, use_covering_area_grid=True, do_convert_rgb=True,
            resample=3), "Ovis2ImageProcessorPil", run=run_ovis2, rows=rows_ovis2, word=OVIS_WORDS[0], per_tile=4,
        given_rows=True)
    family("minicpmv4_6", {
        "architectures": ["MiniCPMV4_6ForConditionalGeneration"], "model_type": "minicpmv4_6", "image_token_id": IMAGE,
        "video_token_id": 153, "insert_layer_id": 1, "image_size": 32, "drop_vision_last_layer": False,
        "downsample_mode": "16x", "merge_kernel_size": [2, 2], "merger_times": 1, "tie_word_embeddings": True,
        "text_config": dict(TEXT, model_type="qwen3_5_text", rms_norm_eps=1e-6, hidden_act="silu", head_dim=16,
                            num_hidden_layers=2, attn_output_gate=True, attention_bias=False, linear_conv_kernel_dim=4,
                            linear_key_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=2,
                            linear_value_head_dim=8, full_attention_interval=2, partial_rotary_factor=0.5,
                            layer_types=["linear_attention", "full_attention"], mamba_ssm_dtype="float32",
                            tie_word_embeddings=True,
                            rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                                             "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1],
                                             "mrope_interleaved": True}),
        "vision_config": {"model_type": "minicpmv4_6_vision", "hidden_size": 32, "intermediate_size": 40,
                          "num_hidden_layers": 3, "num_attention_heads": 2, "num_channels": 3, "image_size": 24,
                          "patch_size": 4, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
                          "window_kernel_size": [2, 2]},
    }, dict(USUAL, **HALF, image_processor_type="MiniCPMV4_6ImageProcessor", max_slice_nums=9, scale_resolution=32,
            patch_size=4, slice_mode=True, downsample_mode="16x", use_image_id=True, do_convert_rgb=True, resample=3),
        "MiniCPMV4_6ImageProcessorPil", run=run_minicpm, rows=rows_minicpm, word="<|image_pad|>", given_rows=True)
    family("minicpmv", {
        "architectures": ["MiniCPMV"], "model_type": "minicpmv", "version": 2.6, "query_num": 4, "image_size": 448,
        "drop_vision_last_layer": False, "batch_vision_input": True, "slice_mode": True, "use_image_id": True,
        "hidden_size": 128, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 16,
        "num_key_value_heads": 1, "vocab_size": TEXT["vocab_size"], "max_position_embeddings": 512,
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "use_sliding_window": False,
        "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
        "vision_config": {"model_type": "siglip", "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
                          "num_attention_heads": 2, "image_size": 24, "patch_size": 4},
    }, dict(HALF, image_processor_type="MiniCPMVImageProcessor", image_feature_size=4, max_slice_nums=3, norm_mean=[0.5] * 3,
            norm_std=[0.5] * 3, patch_size=4, scale_resolution=16, slice_mode=True, use_image_id=True, im_start="<image>",
            im_end="</image>", slice_start="<slice>", slice_end="</slice>", unk="<unk>", im_id_start="<image_id>",
            im_id_end="</image_id>", version=2.6), None, run=run_minicpm_2, rows=rows_minicpm_2, word="<unk>",
        given_rows=True, build=build_minicpm_2,
        tensors=lambda t: {k: x for k, x in t.items() if "vit_merger" not in k and k != "llm.lm_head.weight"})
