/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names that GGUF files give in tokenizer.ggml.pre, and what each means.
 *
 * The patterns of one name are applied one after the other; each splits the pieces of the one before and keeps what it
 * does not match as pieces of their own. They are the patterns of the models' own tokenizers; \r and \n escapes stand
 * for themselves. What a name also decides: whether a word that is a token is taken without merging (ignore_merges),
 * whether BOS is added where the file does not say (add_bos), whether tokens are plain UTF-8 instead of GPT-2's
 * alphabet.
 */
#include "tokenizer/internal.h"

#include <string.h>

#define CONTRACTIONS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define TAIL "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3(digits) CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL
#define QWEN35 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" TAIL
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"
#define GPT4O(suffix, digits)                                                                                          \
    LEAD UPPER "*" LOWER "+" suffix "|" LEAD UPPER "+" LOWER "*" suffix "|" digits                                     \
               "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL
#define DEEPSEEK3                                                                                                      \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "              \
    "?[\\p{P}\\p{S}]+[\\r\\n]*" TAIL
#define JAIS2                                                                                                          \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "                                                        \
                 "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|"                        \
                 "\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?" \
                 "!\\S)|\\s{1}"
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
#define LINES "[^\\n]+|[\\n]+"
#define CJK_DEEPSEEK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define CJK_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
/* Letters with case, as listed by DeepSeek LLM's tokenizer. */
#define DEEPSEEK_LETTERS                                                                                               \
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}"               \
    "\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}"             \
    "\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-"          \
    "\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}"         \
    "\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}"         \
    "-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-"         \
    "\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-"         \
    "\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-"          \
    "\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"           \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"          \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-"         \
    "\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}"         \
    "\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-"                  \
    "\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+"
#define DEEPSEEK_PUNCTUATION "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"
#define YOUTU_CJK                                                                                                      \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}"                \
    "\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|["            \
    "\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define AFMOE_CJK                                                                                                      \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{8c48}-\\x{faff}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}"                 \
    "\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{e7f}\\x{e80}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-"            \
    "\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+"

static const pre_name names[] = {
    /* The fallback of files that name none. */
    { .name = "default", .patterns = { "[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" } },

    /* GPT-2's own pattern. */
    { .name = "gpt-2", .patterns = { GPT2 } },
    { .name = "phi-2", .patterns = { GPT2 } },
    { .name = "mpt", .patterns = { GPT2 } },
    { .name = "olmo", .patterns = { GPT2 } },
    { .name = "jais", .patterns = { GPT2 } },
    { .name = "trillion", .patterns = { GPT2 } },
    { .name = "granite-docling", .patterns = { GPT2 } },
    { .name = "exaone4", .patterns = { GPT2 } },
    { .name = "jina-es", .patterns = { GPT2 } },
    { .name = "jina-de", .patterns = { GPT2 } },
    { .name = "jina-v2-es", .patterns = { GPT2 } },
    { .name = "jina-v2-de", .patterns = { GPT2 } },
    { .name = "gigachat", .patterns = { GPT2 } },
    { .name = "a.x-4.0", .patterns = { GPT2 } },
    { .name = "mellum", .patterns = { GPT2 } },
    { .name = "modern-bert", .patterns = { GPT2 } },
    { .name = "jina-v1-en", .patterns = { GPT2 }, .add_sep = true },
    { .name = "jina-v2-code", .patterns = { GPT2 }, .add_sep = true },
    { .name = "roberta-bpe", .patterns = { GPT2 }, .add_sep = true },

    /* Single digits, then GPT-2's. */
    { .name = "starcoder", .patterns = { "\\p{N}", GPT2 } },
    { .name = "refact", .patterns = { "\\p{N}", GPT2 } },
    { .name = "command-r", .patterns = { "\\p{N}", GPT2 } },
    { .name = "smollm", .patterns = { "\\p{N}", GPT2 } },
    { .name = "codeshell", .patterns = { "\\p{N}", GPT2 } },
    { .name = "exaone", .patterns = { "\\p{N}", GPT2 } },
    { .name = "minerva-7b", .patterns = { "\\p{N}", GPT2 } },
    { .name = "mellum2", .patterns = { "\\p{N}", GPT2 } },

    { .name = "falcon", .patterns = { "[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]" } },

    /* Llama 3: contractions in any case, up to three digits. */
    { .name = "llama3", .patterns = { LLAMA3("\\p{N}{1,3}") }, .ignore_merges = true, .add_bos = true },
    { .name = "llama-v3", .patterns = { LLAMA3("\\p{N}{1,3}") }, .ignore_merges = true, .add_bos = true },
    { .name = "llama-bpe", .patterns = { LLAMA3("\\p{N}{1,3}") }, .ignore_merges = true, .add_bos = true },
    { .name = "falcon3", .patterns = { LLAMA3("\\p{N}{1,3}") }, .ignore_merges = true, .add_bos = true },
    { .name = "falcon-h1", .patterns = { LLAMA3("\\p{N}{1,3}") }, .ignore_merges = true, .add_bos = true },
    { .name = "pixtral", .patterns = { LLAMA3("\\p{N}{1,3}") }, .ignore_merges = true, .add_bos = true },
    { .name = "midm-2.0", .patterns = { LLAMA3("\\p{N}{1,3}") }, .ignore_merges = true, .add_bos = true },
    { .name = "lfm2", .patterns = { LLAMA3("\\p{N}{1,3}") }, .ignore_merges = true, .add_bos = true },
    { .name = "jina-v5-nano", .patterns = { LLAMA3("\\p{N}{1,3}") }, .ignore_merges = true, .add_bos = true },
    { .name = "dbrx", .patterns = { LLAMA3("\\p{N}{1,3}") } },
    { .name = "smaug-bpe", .patterns = { LLAMA3("\\p{N}{1,3}") } },
    { .name = "glm4", .patterns = { LLAMA3("\\p{N}{1,3}") }, .no_bos_id = true },
    { .name = "chatglm-bpe", .patterns = { LLAMA3("\\p{N}{1,3}") }, .no_bos_id = true },
    { .name = "jais-2", .patterns = { JAIS2 } },
    { .name = "minicpm5", .patterns = { "\\p{N}{1,3}", LLAMA3("\\p{N}+") }, .ignore_merges = true },

    /* Qwen 2: the same with single digits. */
    { .name = "qwen2", .patterns = { LLAMA3("\\p{N}") } },
    { .name = "deepseek-r1-qwen", .patterns = { LLAMA3("\\p{N}") } },
    { .name = "kormo", .patterns = { LLAMA3("\\p{N}") } },
    { .name = "f2llmv2", .patterns = { LLAMA3("\\p{N}") } },
    { .name = "megrez", .patterns = { LLAMA3("\\p{N}") } },
    { .name = "stablelm2", .patterns = { LLAMA3("\\p{N}") } },
    { .name = "hunyuan", .patterns = { LLAMA3("\\p{N}") } },
    { .name = "solar-open", .patterns = { LLAMA3("\\p{N}") } },
    { .name = "grok-2", .patterns = { LLAMA3("\\p{N}") } },
    { .name = "laguna", .patterns = { LINES, LLAMA3("\\p{N}") } },
    { .name = "qwen35", .patterns = { QWEN35 } },
    { .name = "seed-coder",
      .patterns = { CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" TAIL } },
    { .name = "bailingmoe",
      .patterns = { "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "
                    "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+" } },
    { .name = "bailingmoe2",
      .patterns = { "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "
                    "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+" } },
    { .name = "llada-moe",
      .patterns = { "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "
                    "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+" } },
    { .name = "exaone-moe",
      .patterns = { CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}| "
                                 "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+" } },

    /* GPT-4o: words split where lower case meets upper case. */
    { .name = "gpt-4o", .patterns = { GPT4O(CONTRACTIONS "?", "\\p{N}{1,3}") } },
    { .name = "llama4", .patterns = { GPT4O(CONTRACTIONS "?", "\\p{N}{1,3}") } },
    { .name = "kanana2", .patterns = { GPT4O(CONTRACTIONS "?", "\\p{N}{1,3}") } },
    { .name = "talkie", .patterns = { GPT4O(CONTRACTIONS "?", "\\p{N}{1,3}") } },
    { .name = "minimax-m2", .patterns = { GPT4O(CONTRACTIONS "?", "\\p{N}{1,3}") } },
    { .name = "granite-embed-multi-97m",
      .patterns = { GPT4O(CONTRACTIONS "?", "\\p{N}{1,3}") },
      .ignore_merges = true },
    { .name = "tekken", .patterns = { GPT4O("", "\\p{N}") }, .ignore_merges = true, .add_bos = true },
    { .name = "tiny_aya", .patterns = { TOK_DIGITS_RIGHT, GPT4O(CONTRACTIONS "?", "\\p{N}{1,3}") } },
    { .name = "cohere2moe", .patterns = { TOK_DIGITS_RIGHT, GPT4O(CONTRACTIONS "?", "\\p{N}{1,3}") } },
    { .name = "youtu", .patterns = { YOUTU_CJK, GPT4O(CONTRACTIONS "?", "\\p{N}") }, .ignore_merges = true },
    { .name = "kimi-k2", .patterns = { TOK_KIMI } },

    /* DeepSeek. */
    { .name = "deepseek-llm",
      .patterns = { "[\\r\\n]", DEEPSEEK_LETTERS, DEEPSEEK_PUNCTUATION, "\\s+$", CJK_DEEPSEEK, "\\p{N}+" } },
    { .name = "deepseek-coder", .patterns = { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK_DEEPSEEK, "\\p{N}" } },
    { .name = "deepseek-v3", .patterns = { "\\p{N}{1,3}", CJK_KANA, DEEPSEEK3 } },
    { .name = "hunyuan-dense", .patterns = { "\\p{N}{1,3}", CJK_KANA, DEEPSEEK3 } },
    { .name = "joyai-llm", .patterns = { "\\p{N}{1,3}", CJK_KANA, DEEPSEEK3 } },
    { .name = "afmoe", .patterns = { TOK_DIGITS_RIGHT, AFMOE_CJK, DEEPSEEK3 } },

    /* BLOOM and its relatives. */
    { .name = "bloom", .patterns = { BLOOM } },
    { .name = "gpt3-finnish", .patterns = { BLOOM } },
    { .name = "poro-chat", .patterns = { BLOOM } },
    { .name = "viking", .patterns = { BLOOM, "\\p{N}" } },

    { .name = "chameleon",
      .patterns = { "<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
                    "[\\p{P}!-/:-@\\[-`{-~]", GPT2 },
      .add_bos = true },
    { .name = "superbpe", .patterns = { "\\p{N}+", TOK_DIGITS_RIGHT } },

    /* Words are not split; spaces are written as U+2581 and tokens are plain UTF-8. */
    { .name = "gemma4", .patterns = { LINES }, .raw_utf8 = true, .add_bos = true },
    { .name = "granite-embed-multi-311m", .patterns = { LINES }, .raw_utf8 = true, .add_bos = true },
    { .name = "sarvam-moe", .patterns = { LINES }, .raw_utf8 = true },
};

const pre_name *pre_name_find(view name) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (view_eq_c(name, names[i].name)) return &names[i];
    }
    return NULL;
}

const pre_name *pre_name_at(size_t index) { return index < sizeof names / sizeof names[0] ? &names[index] : NULL; }

const char *tok_pre_at(size_t index) {
    const pre_name *p = pre_name_at(index);
    return p ? p->name : NULL;
}

const char *tok_pre_pattern(view pre, size_t index, bool *whole) {
    const pre_name *p = pre_name_find(pre);
    if (!p || p->raw_utf8 || index >= sizeof p->patterns / sizeof *p->patterns) return NULL;
    *whole = p->ignore_merges;
    return p->patterns[index];
}

int pre_name_apply(tok *t, const pre_name *p, err *e) {
    int rc;
    for (size_t i = 0; i < sizeof p->patterns / sizeof p->patterns[0] && p->patterns[i]; i++) {
        rc = tok_pre_add_pattern(t, p->patterns[i], strlen(p->patterns[i]), SPLIT_ISOLATED, false, 0, e);
        if (rc < 0) return err_wrap(e, rc, "pre-tokenizer '%s'", p->name);
    }
    return 0;
}
