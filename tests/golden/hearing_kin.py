# SPDX-License-Identifier: Apache-2.0
"""More families for hearing.py: models whose encoders are kin to Whisper's.

A piece of sound is 0.4 s long instead of 30. Sounds of several pieces are cut as Audio Flamingo 3's processor does it, each piece with
a spectrum of its own; Qwen 2 Audio's would drop all but the first. A sound that gives no row at all is lengthened with silence until
it gives one.
"""

import json
import os
import shutil
import tempfile

import torch

import generate

RATE, BINS, PIECE = 16000, 16, 20
VOCAB, AUDIO = 160, 150

TEXT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "vocab_size": VOCAB, "max_position_embeddings": 512, "hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": False}
QWEN2 = dict(TEXT, model_type="qwen2", rope_theta=1000000.0, use_sliding_window=False)
WHISPER = {"activation_function": "gelu", "d_model": 32, "encoder_attention_heads": 4, "encoder_ffn_dim": 64, "encoder_layers": 2,
           "num_mel_bins": BINS, "max_source_positions": PIECE, "scale_embedding": False}


def front(processor, **more):
    return dict({"feature_extractor_type": "WhisperFeatureExtractor", "processor_class": processor, "feature_size": BINS,
                 "sampling_rate": RATE, "n_fft": 400, "hop_length": 160, "chunk_length": 30, "padding_value": 0.0, "dither": 0.0,
                 "return_attention_mask": True}, **more)


class Kin:
    """A family whose files transformers writes as they are published; `least`: samples that give a row."""

    mask, least, ours, bins = "input_features_mask", 321, PIECE * 320, BINS

    def __init__(self, config, pre, **more):
        self.config, self.pre = config, pre
        self.__dict__.update(more)

    def extractor(self, bins):
        import transformers

        fields = {k: v for k, v in self.pre.items() if k not in ("feature_extractor_type", "processor_class")}
        x = getattr(transformers, self.pre["feature_extractor_type"])(**dict(fields, feature_size=bins))
        x.n_samples, x.nb_max_frames = self.ours, self.ours // 160
        return x

    def features(self, x, bins=BINS):
        """Features and masks, a row for each piece."""
        if len(x) < self.least:
            x = list(x) + [0.0] * (self.least - len(x))
            x = torch.tensor(x, dtype=torch.float32).numpy()
        pieces = [x[i : i + self.ours] for i in range(0, len(x), self.ours)]
        f = self.extractor(bins)(pieces, sampling_rate=RATE, padding="max_length", return_attention_mask=True, return_tensors="pt")
        return f["input_features"], f["attention_mask"]

    def spectrum(self, x, bins):
        return self.features(x, bins)[0][0].T.contiguous()

    def args(self, sounds):
        parts = [self.features(x) for x in sounds]
        return {"input_features": torch.cat([p[0] for p in parts]), self.mask: torch.cat([p[1] for p in parts])}

    def counts(self, sounds):
        return [sum(self.rows_of(int(m.sum())) for m in self.features(x)[1]) for x in sounds]

    def rows_of(self, frames):
        return (frames + 1) // 2 // 2

    def rows(self, model, args):
        got = model.get_audio_features(**args)
        return getattr(got, "pooler_output", got)

    def owner(self, outdir):
        import transformers
        from transformers import AutoConfig

        return getattr(transformers, self.config["architectures"][0]), AutoConfig.from_pretrained(outdir)

    def rename(self, key):
        return key.replace("language_model.model.model.", "language_model.model.")  # see hearing.save

    def load(self, outdir):
        cls, _ = self.owner(outdir)
        model, info = cls.from_pretrained(outdir, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        if info.get("missing_keys") or info.get("unexpected_keys"):
            raise ValueError(f"loading again: {info}")
        return model

    def save(self, name, outdir, fill):
        cls, config = self.owner(outdir)
        model = cls._from_config(config, dtype=torch.float32, attn_implementation="eager")
        fill(name, model)
        model.to(torch.bfloat16)
        tmp = tempfile.mkdtemp()
        try:
            model.save_pretrained(tmp)
            tensors = generate.st_read(os.path.join(tmp, "model.safetensors"))
        finally:
            shutil.rmtree(tmp)
        tensors = {self.rename(k): v for k, v in tensors.items() if self.rename(k)}
        generate.st_write(os.path.join(outdir, "model.safetensors"), tensors, {"format": "pt"})
        print("  ", name, "tensors:", " ".join(f"{k}{list(v.shape)}" for k, v in sorted(tensors.items()) if ".1." not in k))


class Qwen2Audio(Kin):
    mask = "feature_attention_mask"

    def rows(self, model, args):
        """What its projector says, without the rows of silence."""
        said = []
        hook = model.model.multi_modal_projector.register_forward_hook(lambda _m, _i, out: said.append(out))
        counts = [self.rows_of(int(m.sum())) for m in args[self.mask]]
        x = torch.tensor([[2, 3] + [AUDIO] * sum(counts) + [4]])
        model(**args, input_ids=x, attention_mask=torch.ones_like(x))
        hook.remove()
        return torch.cat([r[:n] for r, n in zip(said[0], counts)])


class GlmAsr(Kin):
    least = 961

    def rows_of(self, frames):
        return (frames + 1) // 2 // 4


class Thinker(Kin):
    """The part of a model that speaks, too, which listens and reads."""

    mask = "feature_attention_mask"

    def owner(self, outdir):
        import transformers

        with open(os.path.join(outdir, "config.json")) as f:
            inner = json.load(f)["thinker_config"]
        stem = self.stem
        return (getattr(transformers, stem + "ThinkerForConditionalGeneration"),
                getattr(__import__(self.module, fromlist=["x"]), stem + "ThinkerConfig")(**inner))

    def rename(self, key):
        return None if key.startswith("visual.") else "thinker." + key

    def load(self, outdir):
        cls, config = self.owner(outdir)
        model = cls._from_config(config, dtype=torch.float32, attn_implementation="eager")
        have = {k[len("thinker."):]: v for k, v in generate_tensors(outdir).items()}
        missing, unexpected = model.load_state_dict(have, strict=False)
        missing = [k for k in missing if not k.startswith("visual.")]
        if missing or unexpected:
            raise ValueError(f"loading again: {missing} {unexpected}")
        return model


def generate_tensors(outdir):
    return {k: v.float() for k, v in generate.st_read(os.path.join(outdir, "model.safetensors")).items()}


class Qwen25Omni(Thinker):
    stem, module, ours = "Qwen2_5Omni", "transformers.models.qwen2_5_omni.configuration_qwen2_5_omni", 2 * RATE

    def spectrum(self, x, bins):
        f, m = self.features(x, bins)
        return f[0][:, m[0].bool()].T.contiguous()

    def rows(self, model, args):
        return model.get_audio_features(**args).last_hidden_state


KIN = {
    "qwen2_audio": Qwen2Audio({
        "architectures": ["Qwen2AudioForConditionalGeneration"], "model_type": "qwen2_audio", "audio_token_index": AUDIO,
        "audio_config": dict(WHISPER, model_type="qwen2_audio_encoder", encoder_layerdrop=0.0), "text_config": QWEN2, "vocab_size": VOCAB,
    }, front("Qwen2AudioProcessor")),
    "audioflamingo3": Kin({
        "architectures": ["AudioFlamingo3ForConditionalGeneration"], "model_type": "audioflamingo3", "audio_token_id": AUDIO,
        "audio_config": {"model_type": "audioflamingo3_encoder", "activation_function": "gelu", "hidden_size": 32, "intermediate_size": 64,
                         "num_hidden_layers": 2, "num_attention_heads": 4, "num_mel_bins": BINS, "max_source_positions": PIECE,
                         "scale_embedding": False, "layerdrop": 0.0},
        "text_config": QWEN2, "projector_bias": True, "projector_hidden_act": "gelu",
    }, front("AudioFlamingo3Processor")),
    "glmasr": GlmAsr({
        "architectures": ["GlmAsrForConditionalGeneration"], "model_type": "glmasr", "audio_token_id": AUDIO, "projector_hidden_act": "gelu",
        "audio_config": {"model_type": "glmasr_encoder", "hidden_act": "gelu", "hidden_size": 32, "intermediate_size": 128, "head_dim": 16,
                         "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "num_mel_bins": BINS,
                         "max_position_embeddings": PIECE, "partial_rotary_factor": 0.5,
                         "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
        "text_config": dict(TEXT, model_type="llama", rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, head_dim=16),
        "tie_word_embeddings": False,
    }, front("GlmAsrProcessor")),
    "qwen2_5_omni": Qwen25Omni({
        "architectures": ["Qwen2_5OmniModel"], "model_type": "qwen2_5_omni", "enable_audio_output": False,
        "thinker_config": {
            "architectures": ["Qwen2OmniNaViTThinkerForConditionalGeneration"], "model_type": "qwen2_5_omni_thinker",
            "audio_token_index": AUDIO, "image_token_index": 154, "video_token_index": 155, "audio_start_token_id": 151,
            "audio_end_token_id": 152, "vision_start_token_id": 156, "vision_end_token_id": 157, "vision_token_id": 158,
            "position_id_per_seconds": 25, "seconds_per_chunk": 2, "user_token_id": 9,
            "audio_config": dict(WHISPER, model_type="qwen2_5_omni_audio_encoder", n_window=6, output_dim=32),
            "vision_config": {"model_type": "qwen2_5_omni_vision_encoder", "depth": 1, "hidden_size": 16, "intermediate_size": 16,
                              "num_heads": 1, "out_hidden_size": 32, "fullatt_block_indexes": [0]},
            "text_config": dict(TEXT, model_type="qwen2_5_omni_text", max_window_layers=2, use_sliding_window=False, sliding_window=64,
                                rope_theta=1000000.0,
                                rope_scaling={"mrope_section": [2, 3, 3], "rope_type": "default", "type": "default"}),
        },
    }, front("Qwen2_5OmniProcessor", chunk_length=300)),
}
