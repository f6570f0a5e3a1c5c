#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden token ids from the reference libraries, for tests/unit/tokenizer/test_tokenizer_goldens.c.

usage: make_tokenizer_goldens.py OUTDIR

Needs the Python packages `tokenizers` and `sentencepiece` (a developer's machine; the tests do not). Trains small
tokenizers of every kind on text that it generates itself and writes OUTDIR/tokenizer-goldens.tar.gz:

    texts.json              the texts, an array of strings
    <name>.json             a tokenizer.json
    <name>.model            a SentencePiece model
    <name>.jsonl            one line per text: {"ids", "plain", "literal", "dec", "skip"}; plain, literal and skip are left
                            out where they equal the one before
    log.txt                 versions, and the configurations that could not be made

ids: with the post-processor's tokens; plain: without; literal: without, special-token text taken as plain text;
dec, skip: the decoding of `ids` with special tokens kept and left out. SentencePiece lines have ids and dec only.
"""
import io
import json
import os
import random
import sys
import tarfile
import tempfile
import traceback

WORDS = """the of and to in is that it was for on are with as his they be at one have this from or had by hot word but
what some we can out other were all there when up use your how said an each she which do their time if will way about
many then them write would like so these her long make thing see him two has look more day could go come did number
sound no most people my over know water than call first who may down side been now find any new work part take get
place made live where after back little only round man year came show every good me give our under name very through
just form sentence great think say help low line differ turn cause much mean before move right boy old too same tell
does set three want air well also play small end put home read hand port large spell add even land here must big high
such follow act why ask men change went light kind off need house picture try us again animal point mother world near
build self earth father tokenization unbelievable internationalization it's don't we'll they've I'm you'd""".split()
FOREIGN = ("Der schnelle Fuchs läuft über die Straße und grüßt Jürgen. L'été dernier à Genève, où l'œuvre était déjà là. "
           "El niño corrió mañana por la mañana, ¿verdad? Съешь же ещё этих мягких французских булок. "
           "Η γρήγορη καφέ αλεπού πηδάει ΟΔΟΣ. İstanbul'da ığdır. 今天天气很好，我们去公园。日本語のテキストです。カタカナ "
           "한국어 문장을 토큰화 합니다. नमस्ते दुनिया संस्कृतम्। العربية السلام عليكم، كيف الحال؟ שלום עולם תודה ภาษาไทย "
           "👋🏽 👨‍👩‍👧 🇩🇪 ﬁne ½ ² ① Ⅳ ｆｕｌｌ ｗｉｄｔｈ cafe\u0301 a\u030a\u0323 ").split(" ")
CODE = ["for (int i = 0; i < n; ++i) {\n\tsum += a[i] * 3.14e-10;\n}", "def f(x):\n    return x**2  # square\n",
        "SELECT * FROM users WHERE id=42 AND name<>'O''Brien';", "<div class=\"x\">&nbsp;</div>\r\n", "x==y&&z||!w",
        "https://example.org/a/b?c=d&e=f#g", "0x1F600 1234567890 12 345 6.02e23 1,000,000", "snake_case camelCase PascalCase"]


def prose(rng, n):
    out = []
    for i in range(n):
        w = rng.choice(WORDS)
        r = rng.random()
        if r < 0.06:
            w = rng.choice(FOREIGN)
        elif r < 0.10:
            w = str(rng.randrange(10 ** rng.randrange(1, 8)))
        elif r < 0.16:
            w = w.capitalize()
        elif r < 0.18:
            w = w.upper()
        out.append(w + rng.choice(["", "", "", "", "", "", ",", ".", "!", "?", ";", ":"]))
    return " ".join(out)


def training_lines():
    rng = random.Random(7)
    lines = [prose(rng, rng.randrange(4, 30)) for _ in range(1500)]
    for _ in range(60):
        lines += CODE
        lines.append(" ".join(rng.sample(FOREIGN, 12)))
    return lines


def make_texts():
    rng = random.Random(11)
    t = ["", " ", "  ", "   ", "\n", "\n\n", "\t", " \n", "\r\n", "a", " a", "a ", "  a  b  ", "Hello, world!", "Hello  world",
         "it's We'LL DON'T they'Ve 'S 'x", "'", "''", "ab\u200bcd", "\u200d", "a\u0300\u0301b", "é", "e\u0301", "Å", "\ufeffbom",
         "x\u00a0y", "x\u3000y", "x\u2028y", "\u180ex", "x\u0085y", "\u001c\u001d", "tab\tsep", "a\u0000b", "\u0001\u0002", "İI ıi",
         "ΣΑΣ σας ς", "ǅ ǆ Ǆ", "ﬁ ﬂ", "①②③", "½¼", "２３４", "12345678901", "3.14159", "-1", "1e5", "٣٤٥", "一二三", "漢字かな交じり文",
         "中文English混排123", "한국어", "각", "नमस्ते", "สวัสดี", "👋🏽", "👨‍👩‍👧‍👦", "🇩🇪🇫🇷", "a👍b", "\U0001f9ff\U00010348", "\U0010ffff", "\ue000",
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         "tokenization internationalization", "snake_case_name", "kebab-case", "a/b\\c", "<s>", "</s>", "<unk>", "<pad>", "[CLS]", "[SEP]",
         "<s>Hello</s>", "a <s> b", "a<mask>b", "a <mask> b", "  <mask>  ", "x <mask>\n\ny", "<mask><mask>", "[MASK] [mask]", "wordsolo",
         "solo", " solo ", "a solo b", "soloist", "xsolo", "solo.", "SOLO", "Solo Café", "keepCase", "KEEPCASE keepcase", "<|x|>", "<|x|><|x|>",
         "y<|x|>z", "<|x", "<|x|", "Ünïcödé Ûber", "ünicode", "▁", "▁▁a", "a▁b", "Ġ", "aĠb", "<0x41>", "<0x0A>", "##ing", "ing", "a  \n  b",
         "a\n\n\nb", "\n a", " \t \n x", "end   ", "(paren)[br]{curly}", "\"quoted\" 'single'", "…—–", "$100 €5 £3", "a+b=c", "^~`|", "#hash @at", "?!?!",
         "\u3002\uff0c", "don’t", "“smart”", "A\u030a", "\u212b", "\u1e9b\u0323", "\uac00\u11a8", "x" * 40, "ab" * 70, " " * 20, "\n" * 9, "1" * 25]
    t += CODE
    t += [prose(rng, rng.randrange(1, 18)) for _ in range(30)]
    pool = [chr(c) for c in list(range(32, 127)) * 3 + list(range(0xa0, 0x180)) + list(range(0x391, 0x3ca)) + list(range(0x410, 0x450))
            + [0x300, 0x301, 0x308, 0x93f, 0x94d, 0x915, 0x937, 0xe01, 0xe31, 0x5d0, 0x5b0, 0x627, 0x64b, 0x1100, 0x1161, 0xac00, 0x4e00, 0x4e8c,
               0x3042, 0x30a2, 0x200b, 0x200d, 0x2003, 0x3000, 0xfe0f, 0x20ac, 0x2211, 0x2460, 0x2160, 0xff21, 0x1f600, 0x1f44d, 0x1f3fd, 0x1d400]
            + [10, 9, 13, 32, 32, 32, 32, 32, 32]]
    for _ in range(40):
        t.append("".join(rng.choice(pool) for _ in range(rng.randrange(1, 40))))
    return t


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?"
         r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")


def configurations(charsmap):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    P, N, D, X = pre_tokenizers, normalizers, decoders, processors
    bl_alphabet = P.ByteLevel.alphabet()

    def tok(model, norm=None, pre=None, dec=None):
        t = Tokenizer(model)
        if norm is not None:
            t.normalizer = norm
        if pre is not None:
            t.pre_tokenizer = pre
        if dec is not None:
            t.decoder = dec
        return t

    def add_tokens(t):
        t.add_special_tokens([AddedToken("<|x|>", special=True, normalized=False), AddedToken("<mask>", lstrip=True, rstrip=True, special=True)])
        t.add_tokens([AddedToken("solo", single_word=True), AddedToken("keepCase", normalized=True), AddedToken("Café", normalized=False),
                      AddedToken("  b", normalized=False, rstrip=True)])

    def bpe(norm=None, pre=None, dec=None, size=500, bl=True, post=None, added=True, **kw):
        special = ["<unk>", "<s>", "</s>", "<pad>"]
        tkw = {}
        if "end_of_word_suffix" in kw:
            tkw["end_of_word_suffix"] = kw["end_of_word_suffix"]
        if "continuing_subword_prefix" in kw:
            tkw["continuing_subword_prefix"] = kw["continuing_subword_prefix"]
        t = tok(models.BPE(**kw), norm, pre, dec or (D.ByteLevel() if bl else None))
        if kw.get("byte_fallback"):
            special = special + ["<0x%02X>" % i for i in range(256)]
            size += 256
        t.train_from_iterator(training_lines(), trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                              initial_alphabet=bl_alphabet if bl else [], limit_alphabet=90 if not bl else 1000, **tkw))
        if kw.get("byte_fallback"):  # byte tokens are not added tokens in published files
            j = json.loads(t.to_str())
            j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
            t = Tokenizer.from_str(json.dumps(j))
        if added:
            add_tokens(t)
        if post:
            t.post_processor = post(t)
        return t

    def template(t):
        return X.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1",
                                    special_tokens=[("<s>", t.token_to_id("<s>")), ("</s>", t.token_to_id("</s>"))])

    c = {}
    c["gpt2"] = lambda: bpe(pre=P.ByteLevel(add_prefix_space=False), post=lambda t: X.ByteLevel(trim_offsets=True))
    c["roberta"] = lambda: bpe(pre=P.ByteLevel(add_prefix_space=True), post=lambda t: X.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>"))))
    c["llama3"] = lambda: bpe(pre=P.Sequence([P.Split(Regex(LLAMA3), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]), ignore_merges=True,
                              post=lambda t: X.Sequence([X.ByteLevel(), template(t)]))
    c["qwen2"] = lambda: bpe(norm=N.NFC(), pre=P.Sequence([P.Split(Regex(QWEN2), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]))
    c["gpt4o"] = lambda: bpe(pre=P.Sequence([P.Split(Regex(GPT4O), "removed", invert=True), P.ByteLevel(add_prefix_space=False, use_regex=False)]))
    c["deepseek3"] = lambda: bpe(pre=P.Sequence([P.Split(Regex(r"\p{N}{1,3}"), "isolated"), P.Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
        P.Split(Regex("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"), "isolated"),
        P.ByteLevel(add_prefix_space=False, use_regex=False)]))
    c["starcoder"] = lambda: bpe(pre=P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False)]))
    c["falcon"] = lambda: bpe(pre=P.Sequence([P.Punctuation("contiguous"), P.ByteLevel(add_prefix_space=False), P.Digits(individual_digits=False),
                                              P.Split(Regex("[0-9][0-9][0-9]"), "isolated")]))
    c["blnorm"] = lambda: bpe(norm=N.ByteLevel(), pre=P.Split(Regex("Ġ?[^Ġ]+|Ġ"), "isolated"), dec=D.ByteLevel())
    llama2_dec = D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
    c["llama2"] = lambda: bpe(norm=N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), dec=llama2_dec, bl=False, unk_token="<unk>", fuse_unk=True,
                              byte_fallback=True, post=template)
    c["gemma"] = lambda: bpe(norm=N.Replace(" ", "▁"), pre=P.Split(" ", "merged_with_previous"), dec=D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse()]),
                             bl=False, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    for scheme in ("always", "first", "never"):
        for split in (True, False):
            c["metaspace_%s_%d" % (scheme, split)] = (lambda scheme=scheme, split=split: bpe(pre=P.Metaspace(prepend_scheme=scheme, split=split),
                dec=D.Metaspace(prepend_scheme=scheme, split=split), bl=False, unk_token="<unk>", fuse_unk=split))
    c["nounk"] = lambda: bpe(pre=P.Whitespace(), bl=False, dec=D.Fuse())
    c["clip"] = lambda: bpe(norm=N.Sequence([N.NFC(), N.Replace(Regex(r"\s+"), " "), N.Lowercase()]), pre=P.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
                            dec=D.BPEDecoder(suffix="</w>"), bl=False, unk_token="<unk>", end_of_word_suffix="</w>")
    c["contprefix"] = lambda: bpe(pre=P.WhitespaceSplit(), dec=D.WordPiece(prefix="##", cleanup=False), bl=False, unk_token="<unk>", continuing_subword_prefix="##")
    for name, norm in {"nfd": N.NFD(), "nfkc": N.NFKC(), "nfkd": N.NFKD(), "strip": N.Strip(True, True), "lstrip": N.Strip(True, False), "accents": N.Sequence([N.NFD(), N.StripAccents()]),
                       "nmt": N.Nmt(), "lower": N.Lowercase(), "replre": N.Replace(Regex("[aeiou]{1,2}"), "<v>"), "prepend": N.Prepend("x ")}.items():
        c["norm_" + name] = lambda norm=norm: bpe(norm=norm, pre=P.ByteLevel(add_prefix_space=False), size=380)
    for name, pre in {"ws": P.Whitespace(), "wssplit": P.WhitespaceSplit(), "digits": P.Digits(False), "digits1": P.Digits(True), "delim": P.CharDelimiterSplit("e"), "bert": P.BertPreTokenizer(),
                      "punct_removed": P.Punctuation("removed"), "punct_iso": P.Punctuation("isolated"), "punct_prev": P.Punctuation("merged_with_previous"),
                      "punct_next": P.Punctuation("merged_with_next"), "punct_cont": P.Punctuation("contiguous"), "split_str": P.Split("e", "merged_with_previous"),
                      "split_next": P.Split("e", "merged_with_next"), "split_rm": P.Split(Regex(r"\s+"), "removed"), "split_inv_prev": P.Split(Regex(r"[a-z]+"), "merged_with_previous", invert=True),
                      "split_inv_next": P.Split(Regex(r"[a-z]+"), "merged_with_next", invert=True), "split_inv_cont": P.Split(Regex(r"[a-z]+"), "contiguous", invert=True),
                      "split_cont": P.Split(Regex(r"[^\S\n]|[,.]"), "contiguous"), "split_inv_iso": P.Split(Regex(r"\w"), "isolated", invert=True),
                      "bl_after": P.Sequence([P.ByteLevel(add_prefix_space=True, use_regex=False), P.Split("Ġ", "merged_with_next")]),
                      "meta_digits": P.Sequence([P.Metaspace(), P.Digits(True), P.Punctuation("isolated")])}.items():
        c["pre_" + name] = lambda pre=pre, name=name: bpe(pre=pre, bl=name == "bl_after", size=380, unk_token="<unk>", dec=D.Fuse())
    if hasattr(P, "FixedLength"):
        c["pre_fixed"] = lambda: bpe(pre=P.FixedLength(length=5), bl=False, size=380, unk_token="<unk>", dec=D.Fuse())

    def wordpiece(lower, accents=None, cleanup=True, post=True, **kw):
        t = tok(models.WordPiece(unk_token="[UNK]", **kw), N.BertNormalizer(lowercase=lower, strip_accents=accents), P.BertPreTokenizer(), D.WordPiece(cleanup=cleanup))
        t.train_from_iterator(training_lines(), trainers.WordPieceTrainer(vocab_size=700, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"], show_progress=False))
        add_tokens(t)
        if post:
            t.post_processor = X.BertProcessing(("[SEP]", t.token_to_id("[SEP]")), ("[CLS]", t.token_to_id("[CLS]")))
        return t
    c["bert_uncased"] = lambda: wordpiece(True)
    c["bert_cased"] = lambda: wordpiece(False, cleanup=False)
    c["bert_accents"] = lambda: wordpiece(True, False)
    c["bert_short"] = lambda: wordpiece(True, max_input_chars_per_word=6, post=False)

    def wordlevel():
        t = tok(models.WordLevel(unk_token="<unk>"), N.Lowercase(), P.Whitespace(), D.Fuse())
        t.train_from_iterator(training_lines(), trainers.WordLevelTrainer(vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False))
        add_tokens(t)
        t.post_processor = template(t)
        return t
    c["wordlevel"] = wordlevel

    def unigram(norm, pre, dec=None, fallback=False, post=None):
        t = tok(models.Unigram(), norm, pre, dec or D.Metaspace())
        special = ["<s>", "<pad>", "</s>", "<unk>"] + (["<0x%02X>" % i for i in range(256)] if fallback else [])
        t.train_from_iterator(training_lines(), trainers.UnigramTrainer(vocab_size=700 + (256 if fallback else 0), special_tokens=special, unk_token="<unk>", show_progress=False))
        j = json.loads(t.to_str())
        if fallback:
            j["model"]["byte_fallback"] = True
            j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
        if charsmap and norm == "charsmap":
            pass
        t = Tokenizer.from_str(json.dumps(j))
        add_tokens(t)
        if post:
            t.post_processor = post(t)
        return t
    c["unigram_meta"] = lambda: unigram(N.Sequence([N.Nmt(), N.NFKC(), N.Replace(Regex(" {2,}"), " ")]), P.Metaspace(), post=template)
    c["unigram_fallback"] = lambda: unigram(N.NFC(), P.Metaspace(prepend_scheme="first", split=False), D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)]), fallback=True)
    c["unigram_whole"] = lambda: unigram(None, None, D.Fuse())
    if charsmap:
        c["unigram_charsmap"] = lambda: unigram(N.Sequence([N.Precompiled(charsmap), N.Replace(Regex(" {2,}"), " ")]), P.Sequence([P.WhitespaceSplit(), P.Metaspace()]), post=template)
    return c


SPM = {
    "spm_bpe_llama": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, vocab_size=1000, allow_whitespace_only_pieces=True),
    "spm_bpe_plain": dict(model_type="bpe", normalization_rule_name="nfkc", vocab_size=700),
    "spm_bpe_user": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", vocab_size=900, add_dummy_prefix=False, remove_extra_whitespaces=False,
                         user_defined_symbols=["<|x|>", "solo", "▁▁", "▁▁▁▁", "\n"], control_symbols=["<ctl>"]),
    "spm_uni_nmt": dict(model_type="unigram", normalization_rule_name="nmt_nfkc", vocab_size=700),
    "spm_uni_fallback": dict(model_type="unigram", normalization_rule_name="nmt_nfkc_cf", byte_fallback=True, vocab_size=950, user_defined_symbols=["solo", "<|x|>"]),
    "spm_uni_suffix": dict(model_type="unigram", normalization_rule_name="identity", treat_whitespace_as_suffix=True, vocab_size=600),
    "spm_uni_noprefix": dict(model_type="unigram", normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False, vocab_size=600),
}


def main():
    out_dir = sys.argv[1]
    os.makedirs(out_dir, exist_ok=True)
    files, log, texts = {}, [], make_texts()
    files["texts.json"] = json.dumps(texts)
    charsmap = None
    try:
        import sentencepiece as spm
        log.append("sentencepiece " + spm.__version__)
        with tempfile.TemporaryDirectory() as tmp:
            corpus = os.path.join(tmp, "t.txt")
            with open(corpus, "w", encoding="utf-8") as f:
                f.write("\n".join(line.replace("\n", " ").replace("\r", " ") for line in training_lines()))
            for name, kw in SPM.items():
                try:
                    kw = dict(dict(character_coverage=0.998, hard_vocab_limit=False, minloglevel=2, num_threads=1), **kw)
                    spm.SentencePieceTrainer.train(input=corpus, model_prefix=os.path.join(tmp, name), **kw)
                    data = open(os.path.join(tmp, name + ".model"), "rb").read()
                    sp = spm.SentencePieceProcessor(model_proto=data)
                    lines = []
                    for t in texts:
                        ids = sp.encode(t)
                        lines.append(json.dumps({"ids": ids, "dec": sp.decode(ids)}))
                    files[name + ".model"] = data
                    files[name + ".jsonl"] = "\n".join(lines) + "\n"
                    if name == "spm_uni_nmt":
                        charsmap = find_charsmap(data)
                except Exception:
                    log.append("FAILED %s\n%s" % (name, traceback.format_exc()))
    except ImportError:
        log.append("no sentencepiece")
    import tokenizers
    log.append("tokenizers " + tokenizers.__version__)
    for name, make in configurations(charsmap).items():
        try:
            t = make()
            saved = t.to_str()
            t = tokenizers.Tokenizer.from_str(saved)
            lines = []
            for text in texts:
                ids = t.encode(text).ids
                plain = t.encode(text, add_special_tokens=False).ids
                t.encode_special_tokens = True
                literal = t.encode(text, add_special_tokens=False).ids
                t.encode_special_tokens = False
                line = {"ids": ids, "plain": plain, "literal": literal, "dec": t.decode(ids, skip_special_tokens=False),
                        "skip": t.decode(ids, skip_special_tokens=True)}
                for key, same in (("skip", "dec"), ("literal", "plain"), ("plain", "ids")):
                    if line[key] == line[same]:
                        del line[key]
                lines.append(json.dumps(line, separators=(",", ":")))
            files[name + ".json"] = saved
            files[name + ".jsonl"] = "\n".join(lines) + "\n"
        except Exception:
            log.append("FAILED %s\n%s" % (name, traceback.format_exc()))
    files["log.txt"] = "\n".join(log) + "\n"
    path = os.path.join(out_dir, "tokenizer-goldens.tar.gz")
    with tarfile.open(path, "w:gz") as tar:
        for name in sorted(files):
            data = files[name] if isinstance(files[name], bytes) else files[name].encode("utf-8")
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    print(path, os.path.getsize(path), "bytes,", len(files), "files")
    print("\n".join(log))


def find_charsmap(data):
    """precompiled_charsmap (field 2) of normalizer_spec (field 3) of a serialized ModelProto."""
    def fields(b):
        i = 0
        def varint():
            nonlocal i
            v = s = 0
            while True:
                x = b[i]; i += 1
                v |= (x & 127) << s; s += 7
                if x < 128:
                    return v
        while i < len(b):
            key = varint()
            if key & 7 == 0:
                yield key >> 3, varint()
            elif key & 7 == 2:
                n = varint(); yield key >> 3, b[i:i + n]; i += n
            elif key & 7 == 5:
                yield key >> 3, b[i:i + 4]; i += 4
            else:
                yield key >> 3, b[i:i + 8]; i += 8
    for number, value in fields(data):
        if number == 3:
            for n2, v2 in fields(value):
                if n2 == 2:
                    return v2
    return None


if __name__ == "__main__":
    main()
