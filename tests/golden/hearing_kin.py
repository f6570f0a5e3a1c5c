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

    mask, least, ours, texts = "input_features_mask", 321, PIECE * 320, VOCAB

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

    def take(self, model, sounds):
        args = self.args(sounds)
        return args, self.rows(model, args), self.counts(sounds)

    def prompt(self, ids, counts):
        return ids

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


class Whisper(Kin):
    """A decoder beside the encoder: all rows of the one piece come first, then a text that the model goes on with by itself."""

    least, ours, cases, end = 1, 80 * 320, [[x] for x in "abcde"], 100

    def take(self, model, sounds):
        (x,) = sounds
        args = {"input_features": self.features(x)[0]}
        return args, model.model.encoder(**args).last_hidden_state[0], [self.ours // 320]

    def features(self, x, bins=BINS):
        f = self.extractor(bins)([x], sampling_rate=RATE, padding="max_length", return_tensors="pt")
        return f["input_features"], None

    def ask(self, model, args, rng, counts, last):
        """A prompt with the greedy answer to it, and all their logits."""
        ids = [rng.randrange(3, 148) for _ in range(12)]
        while True:
            logits = model(**args, decoder_input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
            if len(ids) == 12 + last:
                return [AUDIO] * counts[0] + ids, logits
            ids.append(int(logits[-1].argmax()))

    def dictate(self, model, read):
        """What transformers' own generate forces the model to begin with, and how it goes on."""
        from transformers import GenerationConfig

        seen = []
        inner = model._prepare_decoder_input_ids

        def prepare(*args, **more):
            ids, kwargs = inner(*args, **more)
            seen.append(ids[0].tolist())
            return ids, kwargs

        model._prepare_decoder_input_ids = prepare
        cases = []
        for name in "abcde":
            for language, task, prompt in ((None, "transcribe", None), ("de", "transcribe", None), ("en", "translate", None),
                                           ("en", "transcribe", "Hearth hears"), (None, "translate", None),
                                           (None, "transcribe", "So it is")):
                seen.clear()
                # space and letters have the numbers that tests/api/vision_model.py gives them
                ids = prompt and torch.tensor([107, 3] + [3 if c == " " else ord(c) - 33 + 4 for c in prompt])
                args = {"input_features": self.features(read(name))[0], "generation_config": GenerationConfig(**GENERATION)}
                args["generation_config"].max_new_tokens = 10
                got = model.generate(**args, language=language, task=task, prompt_ids=ids, return_timestamps=False, do_sample=False)
                cases.append({"sound": name, "language": language, "task": task, "prompt": prompt, "times": False, "begin": seen[0],
                              "said": got[0].tolist()})
            cases += [self.timed(model, name, read(name), language) for language in ("en", "de", "yue")]
        del model._prepare_decoder_input_ids
        return cases

    def timed(self, model, name, x, language):
        """With times: generate's own rules for them, one token after the other, since it goes on behind the last moment for ever."""
        from transformers import GenerationConfig
        from transformers.generation.logits_process import (SuppressTokensAtBeginLogitsProcessor, SuppressTokensLogitsProcessor,
                                                            WhisperTimeStampLogitsProcessor)

        g = GenerationConfig(**dict(GENERATION, suppress_tokens=[t for t in GENERATION["suppress_tokens"] if t < 110]))
        begin = [100, GENERATION["lang_to_id"][f"<|{language}|>"], 105]
        rules = [SuppressTokensAtBeginLogitsProcessor(g.begin_suppress_tokens, len(begin)), SuppressTokensLogitsProcessor(g.suppress_tokens),
                 WhisperTimeStampLogitsProcessor(g, begin_index=len(begin))]
        ids, args = torch.tensor([begin]), {"input_features": self.features(x)[0]}
        while ids.shape[1] < len(begin) + 20:
            scores = model(**args, decoder_input_ids=ids, use_cache=False).logits[:, -1].float()
            for rule in rules:
                scores = rule(ids, scores)
            if int(scores.argmax()) == GENERATION["eos_token_id"]:
                break
            ids = torch.cat([ids, scores.argmax(-1, keepdim=True)], 1)
        return {"sound": name, "language": language, "task": "transcribe", "prompt": None, "times": True, "begin": begin,
                "said": ids[0, len(begin):].tolist()}


# As published vocabularies have it: words, the end, what prompts are made of, and last the moments of a sound in steps of 20 ms. A random
# model would say those unasked, and generate go back to them for ever.
GENERATION = {
    "bos_token_id": 99, "eos_token_id": 99, "pad_token_id": 99, "decoder_start_token_id": 100, "prev_sot_token_id": 107, "is_multilingual": True,
    "lang_to_id": {"<|en|>": 101, "<|de|>": 102, "<|yue|>": 103}, "task_to_id": {"translate": 104, "transcribe": 105},
    "no_timestamps_token_id": 109, "max_initial_timestamp_index": 20, "max_length": 40, "return_timestamps": False,
    "suppress_tokens": [7, 11, 19, 23, 64, 77, 96, 100, 101, 102, 103, 104, 105, 106, 107, 108] + list(range(110, VOCAB)), "begin_suppress_tokens": [3, 67, 88, 99],
}


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


class MusicFlamingo(Kin):
    """Rows turn by the piece of their sound, which the model finds by its words; it cannot have a piece without rows."""

    def features(self, x, bins=BINS):
        f, m = super().features(x, bins)
        kept = [i for i in range(len(f)) if self.rows_of(int(m[i].sum()))]
        return f[kept], m[kept]

    def take(self, model, sounds):
        args, counts = self.args(sounds), self.counts(sounds)
        ids = [x for n in counts for x in [3] + [AUDIO] * n + [4]]
        return args, model.get_audio_features(**args, input_ids=torch.tensor([ids])).pooler_output, counts


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
        tmp = tempfile.mkdtemp()
        try:
            config.save_pretrained(tmp)
            inner = {k[len("thinker."):]: v for k, v in generate.st_read(os.path.join(outdir, "model.safetensors")).items()}
            generate.st_write(os.path.join(tmp, "model.safetensors"), inner, {"format": "pt"})
            model, info = cls.from_pretrained(tmp, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager",
                                               output_loading_info=True)
        finally:
            shutil.rmtree(tmp)
        if info.get("unexpected_keys") or any(not k.startswith("visual.") for k in info.get("missing_keys", [])):
            raise ValueError(f"loading again: {info}")
        return model


class Qwen25Omni(Thinker):
    stem, module, ours = "Qwen2_5Omni", "transformers.models.qwen2_5_omni.configuration_qwen2_5_omni", 2 * RATE

    def spectrum(self, x, bins):
        f, m = self.features(x, bins)
        return f[0][:, m[0].bool()].T.contiguous()

    def rows(self, model, args):
        return model.get_audio_features(**args).last_hidden_state


class Single(Kin):
    """Qwen 3: one sound at a time, which is not padded; chunks of a second make 13 rows."""

    least, chunk = 320, 100

    def features(self, x, bins=BINS):
        if len(x) < self.least:
            x = torch.nn.functional.pad(torch.tensor(x), (0, self.least - len(x))).numpy()
        f = self.extractor(bins)(x, sampling_rate=RATE, padding=True, truncation=False, return_attention_mask=True, return_tensors="pt")
        return f["input_features"], f["attention_mask"]

    def spectrum(self, x, bins):
        f, m = self.features(x, bins)
        return f[0][:, m[0].bool()].T.contiguous()

    def args(self, sounds):
        parts = [self.features(x) for x in sounds]
        most = max(p[0].shape[2] for p in parts)
        wide = [[torch.nn.functional.pad(t, (0, most - t.shape[-1])) for t in p] for p in parts]
        return {"input_features": torch.cat([p[0] for p in wide]), self.mask: torch.cat([p[1] for p in wide])}

    def rows_of(self, frames):
        n = frames % self.chunk
        for _ in range(3):
            n = (n + 1) // 2
        return n + frames // self.chunk * 13


class Qwen3Omni(Single, Thinker):
    stem, module, mask = "Qwen3OmniMoe", "transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe", "feature_attention_mask"

    def load(self, outdir):
        """Each sound by itself: how the last chunk is padded must not depend on the others."""
        model = super().load(outdir)
        inner = model.get_audio_features

        def each(input_features, feature_attention_mask, _lengths=None, **more):
            got = [inner(f, m, None, **more) for f, m in zip(input_features.split(1), feature_attention_mask.split(1))]
            got[0].last_hidden_state = torch.cat([g.last_hidden_state for g in got])
            return got[0]

        model.get_audio_features = each
        return model

    def rows(self, model, args):
        return model.get_audio_features(**args).last_hidden_state


QWEN3_EARS = {"activation_function": "gelu", "d_model": 32, "encoder_ffn_dim": 64, "encoder_layers": 2, "num_mel_bins": BINS,
              "scale_embedding": False, "n_window": 50, "n_window_infer": 100, "downsample_hidden_size": 8, "output_dim": 32}

class Gemma3n(Kin):
    """Eight rows for 1.28 s of sound, whatever is shorter, and one behind the last, which is the end's word; pieces one at a time."""

    least, ours, tokens, texts, offset = 640, 8 * 4 * 4 * 160, 8, 140, 148

    def extractor(self, bins):
        import transformers

        return transformers.Gemma3nAudioFeatureExtractor(feature_size=bins)

    def features(self, x, bins=BINS):
        if len(x) < self.least:
            x = torch.nn.functional.pad(torch.tensor(x), (0, self.least - len(x))).numpy()
        pieces = [self.extractor(bins)([x[i : i + self.ours]], return_tensors="pt") for i in range(0, len(x), self.ours)]
        most = max(p["input_features"].shape[1] for p in pieces)
        f = [torch.nn.functional.pad(p["input_features"], (0, 0, 0, most - p["input_features"].shape[1])) for p in pieces]
        m = [torch.nn.functional.pad(p["input_features_mask"], (0, most - p["input_features_mask"].shape[1])) for p in pieces]
        return torch.cat(f), torch.cat(m).bool()

    def spectrum(self, x, bins):
        f, m = self.features(x, bins)
        return f[0][m[0]].contiguous()

    def args(self, sounds):
        parts = [self.features(x) for x in sounds]
        most = max(p[0].shape[1] for p in parts)
        f = [torch.nn.functional.pad(p[0], (0, 0, 0, most - p[0].shape[1])) for p in parts]
        m = [torch.nn.functional.pad(p[1], (0, most - p[1].shape[1])) for p in parts]
        return {"input_features": torch.cat(f), "input_features_mask": torch.cat(m)}

    def counts(self, sounds):
        return [len(self.features(x)[0]) * self.tokens + 1 for x in sounds]

    def rows(self, model, args):
        """As the model puts them into a prompt; `pieces` says whose they are."""
        pad, end = (model.model.embed_audio(input_ids=torch.tensor([[i]]))[0] for i in (VOCAB - 1, self.offset))
        got = model.model.get_audio_features(args["input_features"], ~args["input_features_mask"])
        rows = []
        for x, m in zip(got.pooler_output, got.audio_mel_mask):
            x = x[~m]
            rows.append(torch.cat([x, pad.expand(self.tokens - len(x), -1)]))
        out, at = [], 0
        for n in self.pieces:
            out += rows[at : at + n] + [end]
            at += n
        return torch.cat(out)

    def take(self, model, sounds):
        self.pieces = [len(self.features(x)[0]) for x in sounds]
        args = self.args(sounds)
        return args, self.rows(model, args), self.counts(sounds)

    def prompt(self, ids, counts):
        """The reference's: text words alone, and the end's own behind the rows."""
        out = [i if i in (AUDIO, 2) else 3 + i % (self.texts - 3) for i in ids]
        at = 0
        for n in counts:
            first = out.index(AUDIO, at)
            at = first + n
            out[at - 1] = self.offset
        return out

    def without_eyes(self):
        """transformers wants another library for them."""
        from transformers.models.gemma3n import modeling_gemma3n as m

        class Auto:
            @staticmethod
            def from_config(config, **more):
                return torch.nn.Identity() if config.model_type == "gemma3n_vision" else self.auto.from_config(config=config, **more)

        self.auto = getattr(self, "auto", m.AutoModel)
        m.AutoModel = Auto

    def save(self, name, outdir, fill):
        self.without_eyes()
        super().save(name, outdir, fill)

    def rename(self, key):
        return None if "embed_vision" in key else key

    def load(self, outdir):
        self.without_eyes()
        cls, _ = self.owner(outdir)
        model, info = cls.from_pretrained(outdir, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        if info.get("unexpected_keys") or any("embed_vision" not in k for k in info.get("missing_keys", [])):
            raise ValueError(f"loading again: {info}")
        inner = model.model.get_audio_features

        def each(f, m, **more):
            got = [inner(f[i : i + 1, : int((~m[i]).sum())], m[i : i + 1, : int((~m[i]).sum())], **more) for i in range(len(f))]
            most = max(g.pooler_output.shape[1] for g in got)
            out = got[0]
            masks = [torch.nn.functional.pad(g.audio_mel_mask, (0, most - g.audio_mel_mask.shape[1]), value=True) for g in got]
            rows = [torch.nn.functional.pad(g.pooler_output, (0, 0, 0, most - g.pooler_output.shape[1])) for g in got]
            out.pooler_output, out.audio_mel_mask = torch.cat(rows), torch.cat(masks)
            return out

        model.model.get_audio_features = each
        return model


class Ultravox(Kin):
    """Not in transformers: its WhisperEncoder, cut to the length of a sound, and the projector as it was published (v0.5). There is no
    language model here: its files lack it."""

    stack, hidden = 8, 48

    def features(self, x, bins=BINS):
        n = max(2, (len(x) + 159) // 160) * 160
        x = torch.nn.functional.pad(torch.tensor(x), (0, n - len(x))).numpy()
        f = self.extractor(bins)(x, sampling_rate=RATE, padding="longest", truncation=False, return_tensors="pt")["input_features"]
        return [f[:, :, i : i + 2 * PIECE] for i in range(0, f.shape[2], 2 * PIECE)]

    def spectrum(self, x, bins):
        return torch.cat(self.features(x, bins), 2)[0].T.contiguous()

    def encoder(self):
        from transformers import WhisperConfig
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        c = {k: v for k, v in self.config["audio_config"].items() if k != "model_type"}
        return WhisperEncoder._from_config(WhisperConfig(**c), dtype=torch.float32, attn_implementation="eager")

    def save(self, name, outdir, fill):
        model = self.encoder()
        fill(name, model)
        w = {"audio_tower." + k: v for k, v in model.state_dict().items()}
        n, p = 32 * self.stack, "multi_modal_projector."
        for k, shape in (("ln_pre", (n,)), ("linear_1", (self.hidden, n)), ("ln_mid", (self.hidden // 2,)), ("linear_2", (32, self.hidden // 2))):
            x = generate.noise(name, k, shape)
            w[p + k + ".weight"] = 1 + 0.2 * x if len(shape) == 1 else x / shape[1] ** 0.5
        w = {k: v.to(torch.bfloat16).contiguous() for k, v in w.items()}
        generate.st_write(os.path.join(outdir, "model.safetensors"), w, {"format": "pt"})

    def load(self, outdir):
        self.w = {k: v.float() for k, v in generate.st_read(os.path.join(outdir, "model.safetensors")).items()}
        model = self.encoder()
        model.load_state_dict({k[len("audio_tower."):]: v for k, v in self.w.items() if k.startswith("audio_tower.")})
        return model

    def encode(self, model, f):
        """As its own forward does it, which wants a whole piece."""
        x = torch.nn.functional.gelu(model.conv1(f))
        x = torch.nn.functional.gelu(model.conv2(x)).permute(0, 2, 1)
        x = x + model.embed_positions.weight[: x.shape[1]]
        for layer in model.layers:
            x = layer(x, None)
            x = x[0] if isinstance(x, tuple) else x
        return model.layer_norm(x)

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.w["multi_modal_projector." + name + ".weight"]

    def project(self, x):
        x = torch.nn.functional.pad(x, (0, 0, 0, -x.shape[1] % self.stack))[0].reshape(-1, 32 * self.stack)
        x = self.norm(x, "ln_pre") @ self.w["multi_modal_projector.linear_1.weight"].T
        up, gate = x.chunk(2, dim=-1)
        return self.norm(torch.nn.functional.silu(gate) * up, "ln_mid") @ self.w["multi_modal_projector.linear_2.weight"].T

    def take(self, model, sounds):
        parts = [[self.project(self.encode(model, f)) for f in self.features(x)] for x in sounds]
        return None, torch.cat([r for p in parts for r in p]), [sum(len(r) for r in p) for p in parts]


KIN = {
    "whisper": Whisper({
        "architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper", "activation_function": "gelu", "d_model": 32,
        "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_layers": 3, "decoder_attention_heads": 2,
        "decoder_ffn_dim": 96, "num_mel_bins": BINS, "max_source_positions": 80, "max_target_positions": 40, "scale_embedding": False,
        "vocab_size": VOCAB, "is_encoder_decoder": True, "use_cache": True, "num_hidden_layers": 2, "dropout": 0.0, "bos_token_id": 99,
        "eos_token_id": 99, "pad_token_id": 99, "decoder_start_token_id": 100,
    }, front("WhisperProcessor", nb_max_frames=3000, n_samples=480000)),
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
    "musicflamingo": MusicFlamingo({
        "architectures": ["MusicFlamingoForConditionalGeneration"], "model_type": "musicflamingo", "audio_token_id": AUDIO,
        "audio_bos_token_id": 151, "audio_eos_token_id": 152, "audio_frame_step": 0.01,
        "audio_config": {"model_type": "audioflamingo3_encoder", "activation_function": "gelu", "hidden_size": 32, "intermediate_size": 64,
                         "num_hidden_layers": 2, "num_attention_heads": 4, "num_mel_bins": BINS, "max_source_positions": PIECE,
                         "scale_embedding": False, "layerdrop": 0.0},
        "rope_parameters": {"rope_type": "default", "rope_theta": 40.0, "partial_rotary_factor": 0.4},
        "text_config": QWEN2, "projector_bias": True, "projector_hidden_act": "gelu",
    }, front("MusicFlamingoProcessor")),
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
    "qwen3_asr": Single({
        "architectures": ["Qwen3ASRForConditionalGeneration"], "model_type": "qwen3_asr", "audio_token_id": AUDIO, "timestamp_token_id": 149,
        "audio_config": dict(QWEN3_EARS, model_type="qwen3_asr_encoder", n_window_infer=200, num_attention_heads=4, max_position_embeddings=13),
        "text_config": dict(TEXT, model_type="qwen3", head_dim=16, rope_theta=1000000.0), "tie_word_embeddings": True,
    }, front("Qwen3ASRProcessor", feature_extractor_type="Qwen3ASRFeatureExtractor", n_window=50, min_length=8000), least=8000),
    "qwen3_omni_moe": Qwen3Omni({
        "architectures": ["Qwen3OmniMoeForConditionalGeneration"], "model_type": "qwen3_omni_moe", "enable_audio_output": False,
        "thinker_config": {
            "model_type": "qwen3_omni_moe_thinker", "audio_token_id": AUDIO, "image_token_id": 154, "video_token_id": 155,
            "audio_start_token_id": 151, "audio_end_token_id": 152, "vision_start_token_id": 156, "vision_end_token_id": 157,
            "position_id_per_seconds": 13, "user_token_id": 9,
            "audio_config": dict(QWEN3_EARS, model_type="qwen3_omni_moe_audio_encoder", encoder_attention_heads=4,
                                 max_source_positions=1500, conv_chunksize=500),
            "vision_config": {"model_type": "qwen3_omni_moe_vision_encoder", "depth": 1, "hidden_size": 16, "intermediate_size": 16,
                              "num_heads": 1, "out_hidden_size": 32, "deepstack_visual_indexes": [0]},
            "text_config": dict(TEXT, model_type="qwen3_omni_moe_text", head_dim=16, num_experts=4, num_experts_per_tok=2,
                                moe_intermediate_size=32, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
                                rope_theta=1000000.0, rope_scaling={"mrope_interleaved": True, "interleaved": True,
                                                                    "mrope_section": [4, 2, 2], "rope_type": "default", "type": "default"}),
        },
    }, front("Qwen3OmniMoeProcessor")),
    "gemma3n": Gemma3n({
        "architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n", "audio_soft_tokens_per_image": 8,
        "vision_soft_tokens_per_image": 4, "audio_token_id": AUDIO, "boa_token_id": 100, "eoa_token_id": 148, "image_token_id": 141,
        "boi_token_id": 101, "eoi_token_id": 140, "tie_word_embeddings": True,
        "audio_config": {"model_type": "gemma3n_audio", "vocab_size": 12, "vocab_offset": 148, "input_feat_size": BINS, "hidden_size": 32,
                         "rms_norm_eps": 1e-6, "gradient_clipping": 1e10, "conf_attention_chunk_size": 12,
                         "conf_attention_context_left": 13, "conf_attention_context_right": 0, "conf_attention_logit_cap": 50.0,
                         "conf_num_attention_heads": 2, "conf_num_hidden_layers": 2, "conf_conv_kernel_size": 5,
                         "conf_reduction_factor": 4, "conf_residual_weight": 0.5, "sscp_conv_channel_size": [16, 8],
                         "sscp_conv_group_norm_eps": 1e-3, "sscp_conv_kernel_size": [[3, 3], [3, 3]],
                         "sscp_conv_stride_size": [[2, 2], [2, 2]]},
        "vision_config": {"model_type": "gemma3n_vision", "hidden_size": 16, "vocab_size": 8, "vocab_offset": 140, "rms_norm_eps": 1e-6},
        "text_config": {"model_type": "gemma3n_text", "vocab_size": VOCAB, "vocab_size_per_layer_input": 140, "hidden_size": 32,
                        "intermediate_size": [32] * 4, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1,
                        "head_dim": 16, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh",
                        "sliding_window": 16, "final_logit_softcapping": 4.0, "hidden_size_per_layer_input": 8, "altup_active_idx": 0,
                        "altup_coef_clip": 120.0, "altup_correct_scale": True, "altup_num_inputs": 4, "laurel_rank": 8,
                        "num_kv_shared_layers": 2, "layer_types": ["sliding_attention", "full_attention"] * 2,
                        "activation_sparsity_pattern": [0.9, 0.0, 0.0, 0.0], "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
                        "rope_scaling": None, "tie_word_embeddings": True},
    }, {"feature_extractor_type": "Gemma3nAudioFeatureExtractor", "processor_class": "Gemma3nProcessor", "feature_size": BINS,
        "sampling_rate": RATE, "frame_length_ms": 32.0, "hop_length_ms": 10.0, "min_frequency": 125.0, "max_frequency": 7600.0,
        "preemphasis": 0.97, "preemphasis_htk_flavor": True, "fft_overdrive": True, "dither": 0.0, "input_scale_factor": 1.0,
        "mel_floor": 1e-5, "per_bin_mean": None, "per_bin_stddev": None, "padding_value": 0.0, "return_attention_mask": True}),
    "ultravox": Ultravox({
        "architectures": ["UltravoxModel"], "model_type": "ultravox", "stack_factor": 8, "hidden_size": 48, "projector_act": "swiglu",
        "projector_ln_mid": True, "audio_config": dict(WHISPER, model_type="whisper"),
        "text_config": {"model_type": "llama", "hidden_size": 32, "vocab_size": VOCAB},
    }, front("UltravoxProcessor")),
}
