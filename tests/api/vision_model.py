# SPDX-License-Identifier: Apache-2.0
"""A tiny model that sees or hears, as a directory with a tokenizer and a template: a golden model (tests/golden/vision, tests/golden/sound)
whose words are single characters. What it says means nothing; that it depends on the picture or sound does."""
import json
import os
import re
import shutil
import sys

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "vision")
SOUNDS = os.path.join(GOLDEN, "..", "sound")
HEARING = os.path.join(GOLDEN, "..", "hearing")

GEMMA3 = ("{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else 'user') + '\\n' }}"
          "{% if message['content'] is string %}{{ message['content'] | trim }}{% else %}{% for item in message['content'] %}"
          "{% if item['type'] == 'image' %}{{ '<start_of_image>' }}{% elif item['type'] == 'text' %}{{ item['text'] | trim }}{% endif %}"
          "{% endfor %}{% endif %}{{ '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}")
QWEN = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}{% if message['content'] is string %}"
        "{{ message['content'] }}{% else %}{% for item in message['content'] %}{% if item['type'] == 'image' %}"
        "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{% elif 'text' in item %}{{ item['text'] }}{% endif %}{% endfor %}{% endif %}"
        "{{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
GEMMA4 = ("{{ bos_token }}{% for message in messages %}{{ '<|turn>' + message['role'] + '\\n' }}{% if message['content'] is string %}"
          "{{ message['content'] }}{% else %}{% for item in message['content'] %}{% if item['type'] == 'image' %}{{ '<|image|>' }}"
          "{% elif item['type'] == 'text' %}{{ item['text'] }}{% endif %}{% endfor %}{% endif %}{{ '<turn|>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|turn>model\\n' }}{% endif %}")
TEMPLATES = {"gemma3": GEMMA3, "gemma4": GEMMA4, "gemma4_e": GEMMA4, "qwen2_vl": QWEN, "qwen2_5_vl": QWEN, "qwen3_vl": QWEN, "qwen3_5": QWEN}
PLAIN = ("{{ bos_token }}{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}")

SPECIAL = {
    "gemma3": {150: "<image_soft_token>", 151: "<start_of_image>", 152: "<end_of_image>", 153: "<start_of_turn>", 154: "<end_of_turn>"},
    "llava": {150: "<image>", 153: "<start_of_turn>", 154: "<end_of_turn>"},
    "idefics3": {150: "<image>", 151: "<fake_token_around_image>", 149: "<global-img>",
                 **{120 + 5 * r + c: f"<row_{r + 1}_col_{c + 1}>" for r in range(4) for c in range(4)}},
    "mistral3": {150: "[IMG]", 151: "[IMG_BREAK]", 152: "[IMG_END]"},
    "pixtral": {150: "[IMG]", 151: "[IMG_BREAK]", 152: "[IMG_END]"},
    "voxtral": {150: "[AUDIO]", 151: "[BEGIN_AUDIO]"},
    "gemma4": {150: "<|image|>", 151: "<|image>", 152: "<image|>", 157: "<|turn>", 158: "<turn|>"},
}
SPECIAL["gemma4_e"] = SPECIAL["gemma4"]
# What templates print for a sound; the row's word is number 150.
SAID = {"qwen2_audio": "<|audio_bos|><|AUDIO|><|audio_eos|>", "qwen2_5_omni": "<|audio_bos|><|AUDIO|><|audio_eos|>", "audioflamingo3": "<sound>",
        "glmasr": "<|begin_of_audio|><|pad|><|end_of_audio|>", "qwen3_asr": "<|audio_start|><|audio_pad|><|audio_end|>",
        "qwen3_omni_moe": "<|audio_start|><|audio_pad|><|audio_end|>", "gemma3n": "<audio_soft_token>", "musicflamingo": "<sound>"}
for name, said in SAID.items():
    words = re.findall("<[^>]*>", said)
    SPECIAL[name] = dict(zip((151, 150, 152), words)) if len(words) == 3 else {150: words[0]}
SPECIAL["whisper"] = {99: "<|endoftext|>", 100: "<|startoftranscript|>", 101: "<|en|>", 102: "<|de|>", 103: "<|yue|>", 104: "<|translate|>",
                      105: "<|transcribe|>", 106: "<|startoflm|>", 107: "<|startofprev|>", 108: "<|nospeech|>", 109: "<|notimestamps|>",
                      **{110 + i: f"<|{0.02 * i:.2f}|>" for i in range(50)}}
SPECIAL["musicflamingo"].update({151: "<|sound_bos|>", 152: "<|sound_eos|>"})
SPECIAL["gemma3n"][100] = "<start_of_audio>"
SPECIAL["qwen3_asr"].update({157: "<|im_start|>", 158: "<|im_end|>", 159: "<asr_text>"})
for qwen in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5"):
    SPECIAL[qwen] = {150: "<|image_pad|>", 151: "<|vision_start|>", 152: "<|vision_end|>", 157: "<|im_start|>", 158: "<|im_end|>"}


def make(family, folder, template=None, n_vocab=160):
    shutil.copytree(os.path.join(SOUNDS if family == "voxtral" else HEARING if family in SAID or family == "whisper" else GOLDEN, family), folder,
                    ignore=shutil.ignore_patterns("golden.json", "pixels.u8", "mel.f32", "rows.f32", "logits.f32"))
    special = {0: "<pad>", 1: "<eos>", 2: "<bos>", **SPECIAL[family]}
    letters = ["\u0120"] + [chr(c) for c in range(33, 127)] + ["\u010a"]  # space and line break as GPT-2 writes them
    vocab, free = {text: i for i, text in special.items()}, [i for i in range(n_vocab) if i not in special]
    for i in free:
        vocab[letters.pop(0) if letters else f"<unused{i}>"] = i
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, t in sorted(special.items())]
    doc = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
           "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
           "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
           "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                     "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}}
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        json.dump(doc, f)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        fields = {"bos_token": "<bos>", "eos_token": special.get(99, special[1]), "tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False}
        if family != "whisper":  # it has none
            fields["chat_template"] = template or TEMPLATES.get(family, PLAIN)
        json.dump(fields, f)
    return folder


def picture(name):
    with open(os.path.join(GOLDEN, "pictures", name + ".png"), "rb") as f:
        return f.read()


def sound(name, ending="wav"):
    with open(os.path.join(SOUNDS, "sounds", f"{name}.{ending}"), "rb") as f:
        return f.read()


def ears(folder, path):
    """The encoder of a Voxtral directory as published converters write it."""
    sys.path.insert(0, os.path.join(GOLDEN, ".."))
    import to_gguf

    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    a, g = config["audio_config"], to_gguf.Gguf("clip")
    g.key("has_audio_encoder", True)
    g.key("projector_type", "voxtral")
    for key, value in {"block_count": a["num_hidden_layers"], "embedding_length": a["hidden_size"], "feed_forward_length": a["intermediate_size"],
                       "attention.head_count": a["num_attention_heads"], "attention.layer_norm_epsilon": 1e-5, "num_mel_bins": a["num_mel_bins"],
                       "projection_dim": config["text_config"]["hidden_size"],
                       "projector.stack_factor": a["intermediate_size"] // a["hidden_size"]}.items():
        g.key("audio." + key, value)
    whole = {"conv1": "a.conv1d.1", "conv2": "a.conv1d.2", "embed_positions": "a.position_embd", "layer_norm": "a.post_ln"}
    leaves = {"self_attn_layer_norm": "ln1", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
              "self_attn.out_proj": "attn_out", "final_layer_norm": "ln2", "fc1": "ffn_up", "fc2": "ffn_down"}
    for name, t in to_gguf.read_safetensors(os.path.join(folder, "model.safetensors")).items():
        module, ending = name.rsplit(".", 1)
        if module.startswith("multi_modal_projector.linear_"):
            module = "mm.a.mlp." + module[-1]
        elif module.startswith("audio_tower.layers."):
            layer, leaf = module[len("audio_tower.layers."):].split(".", 1)
            module = f"a.blk.{layer}.{leaves[leaf]}"
        elif module.startswith("audio_tower."):
            module = whole[module[len("audio_tower."):]]
        else:
            continue
        if "conv1d" in module or len(t.shape) == 1:
            t = t.f32()
        if "conv1d" in module and ending == "bias":
            t = t.reshape(t.shape[0], 1)
        g.add(f"{module}.{ending}", t)
    g.write(path, 0, [("general.name", 8, "ears")])
    return path


def mmproj(folder, path):
    """The tower of a Qwen 3 VL directory as published converters write it."""
    sys.path.insert(0, os.path.join(GOLDEN, ".."))
    import to_gguf

    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    with open(os.path.join(folder, "preprocessor_config.json")) as f:
        pre = json.load(f)
    v, g = config["vision_config"], to_gguf.Gguf("clip")
    g.key("projector_type", "qwen3vl_merger")
    side = int(v["num_position_embeddings"] ** 0.5)
    for key, value in {"block_count": v["depth"], "embedding_length": v["hidden_size"], "feed_forward_length": v["intermediate_size"],
                       "attention.head_count": v["num_heads"], "patch_size": v["patch_size"], "image_size": side * v["patch_size"],
                       "projection_dim": v["out_hidden_size"], "spatial_merge_size": v["spatial_merge_size"], "attention.layer_norm_epsilon": 1e-6,
                       "image_mean": pre["image_mean"], "image_std": pre["image_std"], "image_min_pixels": pre["min_pixels"],
                       "image_max_pixels": pre["max_pixels"],
                       "is_deepstack_layers": [i in v["deepstack_visual_indexes"] for i in range(v["depth"])]}.items():
        g.key("vision." + key, value)
    leaves = {"norm1": "ln1", "norm2": "ln2", "attn.qkv": "attn_qkv", "attn.proj": "attn_out", "mlp.linear_fc1": "ffn_up", "mlp.linear_fc2": "ffn_down"}
    whole = {"patch_embed.proj": "v.patch_embd", "pos_embed": "v.position_embd", "merger.norm": "v.post_ln", "merger.linear_fc1": "mm.0",
             "merger.linear_fc2": "mm.2"}
    for name, t in to_gguf.read_safetensors(os.path.join(folder, "model.safetensors")).items():
        if not name.startswith("model.visual."):
            continue
        module, ending = name[len("model.visual."):].rsplit(".", 1)
        if len(t.shape) == 1 or module == "pos_embed":
            t = t.f32()
        if module == "patch_embed.proj" and ending == "weight":  # [n][3][2][y][x]: a tensor for each frame
            rows = t.f32().reshape(t.shape[0] * 6, t.shape[3] * t.shape[4])
            for frame in range(2):
                one = rows.take(range(frame, t.shape[0] * 6, 2)).reshape(t.shape[0], 3, t.shape[3], t.shape[4])
                g.add("v.patch_embd.weight" + (".1" if frame else ""), one)
            continue
        if module.startswith("blocks."):
            _, layer, leaf = module.split(".", 2)
            module = f"v.blk.{layer}.{leaves[leaf]}"
        elif module.startswith("deepstack_merger_list."):
            _, number, leaf = module.split(".")
            module = f"v.deepstack.{v['deepstack_visual_indexes'][int(number)]}.{leaf.replace('linear_', '')}"
        else:
            module = whole[module]
        g.add(f"{module}.{ending}", t)
    g.write(path, 0, [("general.name", 8, "eyes")])
    return path


def ollama(folder, path, context=None, scaling=None):
    """A Gemma 3 directory as one file, as Ollama wrote it: the tower inside under its names, keys of its own, no epsilon, and a word for
    the rows of pictures behind the rows of the embedding. scaling: how much closer positions are; None: the file does not say."""
    sys.path.insert(0, os.path.join(GOLDEN, ".."))
    import to_gguf

    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    v, g = config["vision_config"], to_gguf.Gguf("gemma3")
    c = dict(config["text_config"], sliding_window_pattern=len(config["text_config"]["layer_types"]))  # the last one is full
    rope = to_gguf.rope_of(c)
    to_gguf.common_keys(g, c, rope)
    to_gguf.family_keys(g, c, rope, "gemma3")
    names = {"gemma3.rope.freq_base": "gemma3.rope.global.freq_base", "gemma3.rope.freq_base_swa": "gemma3.rope.local.freq_base"}
    g.kv = [(names.get(k, k), kind, x) for k, kind, x in g.kv if not k.endswith("layer_norm_rms_epsilon")]
    for key, value in {"block_count": v["num_hidden_layers"], "embedding_length": v["hidden_size"], "feed_forward_length": v["intermediate_size"],
                       "image_size": v["image_size"], "patch_size": v["patch_size"], "num_channels": 3,
                       "attention.head_count": v["num_attention_heads"], "attention.layer_norm_epsilon": v["layer_norm_eps"]}.items():
        g.key("vision." + key, value)
    g.key("mm.tokens_per_image", config["mm_tokens_per_image"])
    if context:
        g.kv = [(k, kind, context if k == "gemma3.context_length" else x) for k, kind, x in g.kv]
    if scaling:
        g.key("rope.scaling.type", "linear")
        g.key("rope.scaling.factor", scaling)
    text, leaves = {}, {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_output"}
    for name, t in to_gguf.read_safetensors(os.path.join(folder, "model.safetensors")).items():
        if name.startswith("language_model."):
            text[name.removeprefix("language_model.")] = t
            continue
        module, ending = name.rsplit(".", 1) if "." in name else (name, "")
        if name.endswith("mm_input_projection_weight"):
            module, ending = "mm.mm_input_projection", "weight"
        elif "mm_soft_emb_norm" in name:
            module, t = "mm.mm_soft_emb_norm", t.f32(lambda x: x + 1)
        elif ".encoder.layers." in name:
            layer, leaf = module.split(".layers.")[1].split(".", 1)
            module = f"v.blk.{layer}.{leaves.get(leaf, leaf)}"
        else:
            module = "v." + module.rsplit(".", 1)[1]
        g.add(f"{module}.{ending}", t.f32() if len(t.shape) == 1 else t)
    to_gguf.tensors(g, c, "gemma3", text)
    tokens = words(folder)
    tokens[150] = "<unused>"
    g.write(path, 0, tokenizer_keys(folder, tokens + ["<image_soft_token>"], SPECIAL["gemma3"]))  # behind the model's rows
    return path


def ollama_qwen(folder, path):
    """A Qwen 2.5 VL directory as Ollama wrote it: an architecture of its own, and what the tower's matrices say is not said again."""
    sys.path.insert(0, os.path.join(GOLDEN, ".."))
    import to_gguf

    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    with open(os.path.join(folder, "preprocessor_config.json")) as f:
        pre = json.load(f)
    c, v, g = config["text_config"], config["vision_config"], to_gguf.Gguf("qwen25vl")
    rope = to_gguf.rope_of(c)
    to_gguf.common_keys(g, c, rope)
    g.key("attention.head_count_kv", c["num_key_value_heads"])
    g.key("rope.mrope_section", rope["mrope_section"])
    for key, value in {"block_count": v["depth"], "embedding_length": v["hidden_size"], "attention.head_count": v["num_heads"], "patch_size": v["patch_size"],
                       "num_channels": 3, "spatial_merge_size": v["spatial_merge_size"], "window_size": v["window_size"],
                       "fullatt_block_indexes": v["fullatt_block_indexes"], "attention.layer_norm_epsilon": 1e-6,
                       "image_min_pixels": pre["min_pixels"], "image_max_pixels": pre["max_pixels"]}.items():  # the last two for small pictures
        g.key("vision." + key, value)
    leaves = {"norm1": "ln1", "norm2": "ln2", "attn.proj": "attn_out", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    text = {}
    for name, t in to_gguf.read_safetensors(os.path.join(folder, "model.safetensors")).items():
        if "visual." not in name:
            text[name] = t
            continue
        module, ending = name.split("visual.", 1)[1].rsplit(".", 1)
        if module == "patch_embed.proj":  # [n][3][2][y][x]: a tensor for each frame
            rows = t.f32().reshape(t.shape[0] * 6, t.shape[3] * t.shape[4])
            for frame in range(2):
                g.add(f"v.patch_embd_{frame}.weight", rows.take(range(frame, t.shape[0] * 6, 2)).reshape(t.shape[0], 3, t.shape[3], t.shape[4]))
            continue
        t = t.f32() if len(t.shape) == 1 else t
        if module.startswith("blocks."):
            _, layer, leaf = module.split(".", 2)
            if leaf == "attn.qkv":
                n = t.shape[0] // 3
                for i, part in enumerate(("attn_q", "attn_k", "attn_v")):
                    g.add(f"v.blk.{layer}.{part}.{ending}", t.reshape(3 * n, 1).take(range(i * n, (i + 1) * n)).reshape(n) if len(t.shape) == 1
                          else t.take(range(i * n, (i + 1) * n)))
                continue
            module = f"blk.{layer}.{leaves[leaf]}"
        g.add(f"v.{module}.{ending}", t)
    to_gguf.tensors(g, c, "qwen2vl", text)
    g.write(path, 0, tokenizer_keys(folder, words(folder), SPECIAL["qwen2_5_vl"]))
    return path


# Leaves of towers as Ollama's files name them: Mistral 3's and Gemma 4's by parts of a name, in this order.
MISTRAL3 = (("vision_tower.transformer.layers.", "v.blk."), ("vision_tower.", "v."), ("multi_modal_projector.", "mm."), ("ln_pre", "encoder_norm"),
            ("attention_norm", "attn_norm"), ("attention.o_proj", "attn_output"), ("attention.q_proj", "attn_q"), ("attention.k_proj", "attn_k"),
            ("attention.v_proj", "attn_v"), ("feed_forward.gate_proj", "ffn_gate"), ("feed_forward.up_proj", "ffn_up"), ("feed_forward.down_proj", "ffn_down"))
GEMMA4_TOWER = ((".linear.weight", ".weight"), ("model.vision_tower.encoder.layers.", "v.blk."), ("model.vision_tower.patch_embedder.input_proj", "v.patch_embd"),
                ("model.vision_tower.patch_embedder.position_embedding_table", "v.position_embd.weight"), ("model.vision_tower.", "v."),
                ("model.embed_vision.embedding_projection", "mm.input_projection"), ("input_layernorm", "ln1"), ("post_attention_layernorm", "attn_post_norm"),
                ("pre_feedforward_layernorm", "ln2"), ("post_feedforward_layernorm", "ffn_post_norm"), ("self_attn.q_norm", "attn_q_norm"),
                ("self_attn.k_norm", "attn_k_norm"), ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"), ("self_attn.v_proj", "attn_v"),
                ("self_attn.o_proj", "attn_out"), ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down"))
QWEN3 = (("model.visual.blocks.", "v.blk."), ("model.visual.deepstack_merger_list.", "v.deepstack_merger."), ("patch_embed.proj", "patch_embed"),
         ("model.visual.", "v."), ("attn.proj", "attn_out"))


def inner_tower(g, family, tensors):
    """Adds a tower under Ollama's names. Returns the other tensors."""
    text, n = {}, 0
    for name, t in tensors.items():
        own = name
        for old, new in {"mistral3": MISTRAL3, "gemma4": GEMMA4_TOWER, "qwen3_vl": QWEN3}[family]:
            own = own.replace(old, new)
        if "language_model" in name or name.startswith("lm_head"):
            text[name.removeprefix("language_model.")] = t
            continue
        t = t.f32() if len(t.shape) <= 1 else t
        if family == "gemma4" and own == "v.patch_embd.weight":  # [n][y][x][3] becomes [n][3][y][x]
            side = int((t.shape[1] // 3) ** 0.5)
            t = t.columns([i * 3 + c for c in range(3) for i in range(side * side)]).reshape(t.shape[0], 3, side, side)
        if own.endswith("patch_embed.weight"):  # both frames in one
            t = t.f32().reshape(t.shape[0] * t.shape[1], *t.shape[2:])
        if ".attn.qkv." in own:
            n = t.shape[0] // 3
            for i, part in enumerate(("attn_q", "attn_k", "attn_v")):
                one = t.reshape(3 * n, t.shape[1] if len(t.shape) > 1 else 1).take(range(i * n, (i + 1) * n))
                g.add(own.replace("attn.qkv", part), one if len(t.shape) > 1 else one.reshape(n))
            continue
        g.add(own, t if t.shape else t.reshape(1))
    return text


def ollama_inside(family, folder, path):
    """A directory of Mistral 3, Qwen 3 VL or Gemma 4 as one file, as Ollama wrote it."""
    sys.path.insert(0, os.path.join(GOLDEN, ".."))
    import to_gguf

    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    arch = {"qwen3_vl": "qwen3vl"}.get(family, family)
    c, v, g = dict({"use_double_wide_mlp": False}, **config["text_config"]), config["vision_config"], to_gguf.Gguf(arch)
    rope = to_gguf.rope_of(c)
    to_gguf.common_keys(g, c, rope)
    if family == "gemma4":
        to_gguf.family_keys(g, c, rope, arch)
        to_gguf.extra_tensors(g, c, rope, arch)
    else:
        for key, x in {"attention.head_count_kv": c["num_key_value_heads"], "attention.key_length": c["head_dim"], "attention.value_length": c["head_dim"]}.items():
            g.key(key, x)
    for key, x in {"block_count": v.get("depth", v.get("num_hidden_layers")), "embedding_length": v["hidden_size"],
                   "attention.head_count": v.get("num_heads", v.get("num_attention_heads")), "patch_size": v["patch_size"], "num_channels": 3}.items():
        g.key("vision." + key, x)
    if family == "qwen3_vl":  # the feed-forward's width and the places are left to the matrices
        g.key("rope.mrope_section", rope["mrope_section"])
        for key, x in {"spatial_merge_size": v["spatial_merge_size"], "attention.layer_norm_epsilon": 1e-6, "rope.freq_base": 1e4, "temporal_patch_size": 2,
                       "deepstack_visual_indexes": v["deepstack_visual_indexes"], "shortest_edge": 4096, "longest_edge": 16384,
                       "image_mean": [0.5] * 3, "image_std": [0.5] * 3}.items():
            g.key("vision." + key, x)
    elif family == "mistral3":
        g.key("rope.dimension_count", c["head_dim"])
        for key, x in {"vision.feed_forward_length": v["intermediate_size"], "vision.attention.key_length": v["head_dim"], "vision.image_size": v["image_size"],
                       "vision.rope.freq_base": v["rope_theta"], "spatial_merge_size": config["spatial_merge_size"], "image_token_index": 10,
                       "mm.projector_bias": False, "mm.projector_hidden_act": "gelu"}.items():
            g.key(key, x)
    else:
        for key, x in {"feed_forward_length": v["intermediate_size"], "projector.scale_factor": v["pooling_kernel_size"],
                       "attention.layer_norm_epsilon": v["rms_norm_eps"]}.items():
            g.key("vision." + key, x)
    text = inner_tower(g, family, to_gguf.read_safetensors(os.path.join(folder, "model.safetensors")))
    to_gguf.tensors(g, c, arch, text)
    g.write(path, 0, tokenizer_keys(folder, words(folder), SPECIAL[family]))
    return path


def words(folder):
    with open(os.path.join(folder, "tokenizer.json")) as f:
        vocab = json.load(f)["model"]["vocab"]
    tokens = [None] * len(vocab)
    for word, i in vocab.items():
        tokens[i] = word
    return tokens


def tokenizer_keys(folder, tokens, special):
    with open(os.path.join(folder, "tokenizer_config.json")) as f:
        template = json.load(f)["chat_template"]
    types = [3 if i in special or i < 3 or i >= 160 else 1 for i in range(len(tokens))]
    return [("general.name", 8, "eyes inside"), ("tokenizer.ggml.model", 8, "gpt2"), ("tokenizer.ggml.pre", 8, "gpt-2"),
            ("tokenizer.ggml.tokens", (9, 8), tokens), ("tokenizer.ggml.token_type", (9, 5), types), ("tokenizer.ggml.merges", (9, 8), ["a b"]),
            ("tokenizer.ggml.bos_token_id", 4, 2), ("tokenizer.ggml.eos_token_id", 4, 1), ("tokenizer.ggml.add_bos_token", 7, False),
            ("tokenizer.chat_template", 8, template)]


def text(words):
    return {"type": "text", "text": words}


def ask_parts(server, parts, model, **fields):
    """What a model says to a message of parts, greedily: its text, the log-probabilities, the usage."""
    body = {"model": model, "messages": [{"role": "user", "content": parts}], "temperature": 0, "max_tokens": 8, "logprobs": True}
    status, got = server.post("/v1/chat/completions", dict(body, **fields))
    assert status == 200, got
    choice = got["choices"][0]
    return choice["message"]["content"], [t["logprob"] for t in choice["logprobs"]["content"]], got["usage"]
