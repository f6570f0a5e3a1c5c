/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizer throughput on one thread, and how long opening takes.
 *
 *   bench_tokenizer [FILE...]   also encodes these files
 *
 * The texts are made by the program: English-like prose (words by frequency, with rare and inflected ones, names,
 * numbers and punctuation) and C-like source code. The vocabularies: GPT-2's from the test corpus, if that is there,
 * and one of 150,000 tokens in the manner of Llama 3, built from the same stems by joining bytes to prefixes of words,
 * written once as tokenizer.json and once as GGUF. "cold" is the first call, with an empty word cache; MB/s the best of
 * five.
 */
#include "base/clock.h"
#include "base/file.h"
#include "bundle/tokenizer.h"
#include "convert/gguf_writer.h"
#include "formats/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 4 << 20, VOCAB = 150000 };

static uint64_t state = 20240607;
static uint64_t next_random(void) { /* splitmix64 */
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static const char *const common[] = {
    "the",   "of",     "and",   "to",    "a",     "in",    "is",   "that",  "it",    "was",  "for",    "on",    "are",
    "with",  "as",     "his",   "they",  "be",    "at",    "one",  "have",  "this",  "from", "or",     "had",   "by",
    "not",   "but",    "what",  "all",   "were",  "when",  "we",   "there", "can",   "an",   "your",   "which", "their",
    "said",  "if",     "do",    "will",  "each",  "about", "how",  "up",    "out",   "them", "then",   "she",   "many",
    "some",  "so",     "these", "would", "other", "into",  "has",  "more",  "her",   "two",  "like",   "him",   "see",
    "time",  "could",  "no",    "make",  "than",  "first", "been", "its",   "who",   "now",  "people", "my",    "made",
    "over",  "did",    "down",  "only",  "way",   "find",  "use",  "may",   "water", "long", "little", "very",  "after",
    "words", "called", "just",  "where", "most",  "know"
};
static const char *const starts[] = { "",    "re",  "un",  "over", "inter", "sub",
                                      "pre", "out", "mis", "anti", "trans", "dis" };
static const char *const stems[] = {
    "act",    "form",   "port",   "press",  "light",  "ground", "move",   "write",  "consider", "develop", "house",
    "govern", "stand",  "work",   "cover",  "mark",   "place",  "turn",   "count",  "order",    "press",   "charge",
    "view",   "draw",   "build",  "found",  "state",  "value",  "match",  "quest",  "sign",     "struct",  "scribe",
    "spect",  "tract",  "vert",   "pose",   "mit",    "fer",    "duct",   "clude",  "gress",    "ject",    "late",
    "tain",   "vent",   "vision", "nation", "water",  "paper",  "market", "garden", "winter",   "summer",  "silver",
    "number", "letter", "matter", "father", "mother", "wonder", "corner", "river",  "power",    "paint",   "point",
    "train",  "brain",  "grain",  "plant",  "chance", "dance",  "france", "school"
};
static const char *const ends[] = { "",     "s",   "ed",   "ing", "er",   "ers", "able", "ment", "ments", "ly",
                                    "ness", "ion", "ions", "al",  "ally", "ity", "ism",  "ist",  "ful",   "less" };
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Word number n, most frequent first: the common ones, then combinations. */
static void put_word(str *out, size_t n) {
    if (n < COUNT(common)) {
        str_puts(out, common[n]);
        return;
    }
    n -= COUNT(common);
    size_t end = n % COUNT(ends), stem = n / COUNT(ends) % COUNT(stems),
           start = n / COUNT(ends) / COUNT(stems) % COUNT(starts);
    str_printf(out, "%s%s%s", starts[start], stems[stem], ends[end]);
}

/* Roughly Zipf: the rank is spread evenly over magnitudes. */
static size_t zipf(size_t n) {
    uint64_t r = next_random();
    size_t   limit = (size_t)1 << r % 15;
    return (size_t)(r >> 8) % (limit < n ? limit : n);
}

static void make_prose(str *out) {
    size_t words = COUNT(common) + COUNT(starts) * COUNT(stems) * COUNT(ends), left = 0;
    bool   capital = true;
    while (out->len < TEXT_BYTES) {
        uint64_t r = next_random();
        size_t   at;
        if (left == 0) left = 6 + r % 18;
        at = out->len;
        if (r >> 8 & 31 ? false : r >> 16 & 1)
            str_printf(out, "%u", (unsigned)(r >> 24) % (r >> 20 & 1 ? 100 : 100000));
        else
            put_word(out, zipf(words));
        if ((capital || (r >> 40) % 30 == 0) && out->data[at] >= 'a' && out->data[at] <= 'z') out->data[at] -= 32;
        capital = --left == 0;
        str_puts(out, capital               ? r >> 50 & 7 ? ". " : ".\n\n"
                      : (r >> 44) % 11 == 0 ? ", "
                      : (r >> 44) % 97 == 0 ? "'s "
                                            : " ");
    }
}

static void put_name(str *out) {
    uint64_t r = next_random();
    str_printf(out, r & 1 ? "%s_%s" : "%s%s", common[r % COUNT(common)], stems[(r >> 8) % COUNT(stems)]);
    if (r & 2) str_printf(out, r & 4 ? "_%s" : "%s", ends[(r >> 16) % COUNT(ends)]);
}

static void make_code(str *out) {
    static const char *const types[] = { "int", "size_t", "const char *", "uint32_t", "struct node *" };
    static const char *const ops[] = { " + ", " - ", " * ", " && ", " == ", "->", ".", ", ", " << " };
    unsigned                 depth = 0;
    while (out->len < TEXT_BYTES) {
        uint64_t r = next_random();
        for (unsigned i = 0; i < depth; i++) str_puts(out, "    ");
        switch (r % 6) {
        case 0:
            str_printf(out, "%s ", types[(r >> 8) % COUNT(types)]);
            put_name(out);
            str_printf(out, " = %u;\n", (unsigned)(r >> 16) % 4096);
            break;
        case 1:
            str_puts(out, "if (");
            put_name(out);
            str_puts(out, ops[(r >> 8) % COUNT(ops)]);
            put_name(out);
            str_puts(out, ") {\n");
            if (depth < 6) depth++;
            break;
        case 2:
            if (depth) {
                out->len -= 4;
                depth--;
                str_puts(out, "}\n");
            } else {
                str_puts(out, "\n");
            }
            break;
        case 3:
            str_puts(out, "/* ");
            for (unsigned i = 0; i < 4 + r % 8; i++) {
                put_word(out, zipf(4000));
                str_push(out, ' ');
            }
            str_puts(out, "*/\n");
            break;
        default:
            put_name(out);
            str_push(out, '(');
            put_name(out);
            str_puts(out, ops[(r >> 8) % COUNT(ops)]);
            put_name(out);
            str_printf(out, "[%u], \"%s\\n\");\n", (unsigned)(r >> 16) % 64, stems[(r >> 24) % COUNT(stems)]);
        }
    }
}

/* ---- the Llama-3-like vocabulary ---- */

typedef struct vocabulary {
    str    text; /* tokens in GPT-2's alphabet */
    view  *tokens, *merges;
    size_t n_tokens, n_merges;
} vocabulary;

/* A hash set of the tokens so far. */
typedef struct set {
    uint32_t *slots;
    size_t    mask;
} set;

static uint64_t hash(const char *p, size_t n) {
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)p[i]) * 1099511628211u;
    return h ^ h >> 29;
}

static bool set_add(set *s, vocabulary *v, view text) {
    size_t i = hash(text.data, text.len) & s->mask;
    for (; s->slots[i]; i = (i + 1) & s->mask) {
        view other = v->tokens[s->slots[i] - 1];
        if (other.len == text.len && memcmp(other.data, text.data, text.len) == 0) return false;
    }
    s->slots[i] = (uint32_t)v->n_tokens + 1;
    v->tokens[v->n_tokens++] = text;
    return true;
}

static view keep(str *blob, const char *text, size_t len) {
    size_t at = blob->len;
    str_append(blob, text, len);
    return (view){ blob->data + at, len };
}

/* Adds every prefix of a word, each made of the one before and a letter. */
static void add_word(vocabulary *v, set *s, const char *word, size_t len, size_t space) {
    for (size_t k = space + 1; k <= len && v->n_tokens < VOCAB - 256; k++) {
        if (k == space) continue;
        if (space == 0 && k == 1) continue;
        if (!set_add(s, v, (view){ word, k })) continue;
        view token = keep(&v->text, word, k);
        v->tokens[v->n_tokens - 1] = token;
        size_t last = 1; /* ASCII words only */
        size_t at = v->text.len;
        str_append(&v->text, word, k - last);
        str_push(&v->text, ' ');
        str_append(&v->text, word + k - last, last);
        v->merges[v->n_merges++] = (view){ v->text.data + at, v->text.len - at };
    }
}

static void make_vocabulary(vocabulary *v) {
    set s = { calloc(1 << 19, sizeof *s.slots), (1 << 19) - 1 };
    str word;
    v->tokens = malloc(VOCAB * sizeof *v->tokens);
    v->merges = malloc(VOCAB * sizeof *v->merges);
    str_init(&v->text);
    str_reserve(&v->text, (size_t)64 << 20); /* views point into it: it must not move */
    str_init(&word);
    for (unsigned b = 0; b < 256; b++) {
        unsigned cp = b;
        if (b < 33) cp = 0x100 + b;
        if (b >= 127 && b < 161) cp = 0x121 + b - 127;
        if (b == 173) cp = 0x143;
        str_clear(&word);
        str_put_utf8(&word, cp);
        view t = keep(&v->text, str_cstr(&word), word.len);
        set_add(&s, v, t);
    }
    size_t total = COUNT(common) + COUNT(starts) * COUNT(stems) * COUNT(ends);
    for (size_t n = 0; n < total; n++) {
        str_clear(&word);
        str_puts(&word, "\xC4\xA0"); /* the space of GPT-2's alphabet */
        put_word(&word, n);
        add_word(v, &s, word.data, word.len, 2);
        add_word(v, &s, word.data + 2, word.len - 2, 0);
    }
    while (v->n_tokens < VOCAB - 256) { /* fill up with syllables, as rare words and other languages do */
        static const char consonants[] = "bcdfghjklmnpqrstvwxz", vowels[] = "aeiouy";
        uint64_t          r = next_random();
        str_clear(&word);
        str_puts(&word, "\xC4\xA0");
        for (unsigned i = 0; i < 2 + r % 3; i++) {
            uint64_t q = next_random();
            str_push(&word, consonants[q % 20]);
            str_push(&word, vowels[(q >> 8) % 6]);
            if (q >> 16 & 1) str_push(&word, consonants[(q >> 20) % 20]);
        }
        add_word(v, &s, word.data, word.len, 2);
    }
    for (unsigned i = 0; i < 256; i++) {
        str_clear(&word);
        str_printf(&word, "<|reserved_%u|>", i);
        set_add(&s, v, keep(&v->text, str_cstr(&word), word.len));
        v->tokens[v->n_tokens - 1] = keep(&v->text, str_cstr(&word), word.len);
    }
    str_deinit(&word);
    free(s.slots);
}

#define LLAMA3                                                                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "                                         \
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static int write_json(const vocabulary *v, const char *path, err *e) {
    str          s;
    file_replace f;
    int          rc;
    str_init(&s);
    str_puts(&s, "{\"version\":\"1.0\",\"added_tokens\":[");
    for (size_t i = 0; i < 256; i++) {
        view t = v->tokens[v->n_tokens - 256 + i];
        str_printf(&s, "%s{\"id\":%zu,\"content\":\"%.*s\",\"special\":true,\"normalized\":false}", i ? "," : "",
                   v->n_tokens - 256 + i, (int)t.len, t.data);
    }
    str_puts(&s, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                 "\"Split\",\"pattern\":{\"Regex\":");
    str_put_json(&s, LLAMA3, strlen(LLAMA3));
    str_puts(&s,
             "},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_"
             "regex\":false}]},"
             "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{\n");
    for (size_t i = 0; i < v->n_tokens - 256; i++) {
        str_puts(&s, i ? ",\n      " : "      ");
        str_put_json(&s, v->tokens[i].data, v->tokens[i].len);
        str_printf(&s, ": %zu", i);
    }
    str_puts(&s, "},\"merges\":[\n");
    for (size_t i = 0; i < v->n_merges; i++) {
        str_puts(&s, i ? ",\n      " : "      ");
        str_put_json(&s, v->merges[i].data, v->merges[i].len);
    }
    str_puts(&s, "]}}\n");
    if ((rc = file_replace_begin(&f, path, e)) == 0) {
        fwrite(s.data, 1, s.len, f.out);
        rc = file_replace_commit(&f, e);
    }
    str_deinit(&s);
    return rc;
}

static int write_gguf(const vocabulary *v, const char *path, err *e) {
    gguf_writer *w = NULL;
    int32_t     *types = malloc(v->n_tokens * sizeof *types);
    int          rc = gguf_writer_open(&w, 0, e);
    for (size_t i = 0; i < v->n_tokens; i++) types[i] = i >= v->n_tokens - 256 ? 3 : 1;
    if (rc == 0) rc = gguf_writer_set_string(w, "general.architecture", "llama", e);
    if (rc == 0) rc = gguf_writer_set_string(w, "tokenizer.ggml.model", "gpt2", e);
    if (rc == 0) rc = gguf_writer_set_string(w, "tokenizer.ggml.pre", "llama-bpe", e);
    if (rc == 0) rc = gguf_writer_set_strings(w, "tokenizer.ggml.tokens", v->tokens, v->n_tokens, e);
    if (rc == 0) rc = gguf_writer_set_array(w, "tokenizer.ggml.token_type", META_I32, types, v->n_tokens, e);
    if (rc == 0) rc = gguf_writer_set_strings(w, "tokenizer.ggml.merges", v->merges, v->n_merges, e);
    if (rc == 0) rc = gguf_writer_set_bool(w, "tokenizer.ggml.add_bos_token", false, e);
    if (rc == 0) rc = gguf_writer_write(w, path, e);
    gguf_writer_free(w);
    free(types);
    return rc;
}

/* ---- measuring ---- */

static void encode_row(const char *name, const char *what, const tok *t, view text) {
    tok_ids ids = { 0 };
    err     e = { 0 };
    double  best = 1e9, cold = 0;
    for (int i = 0; i < 5; i++) {
        double start = clock_s();
        ids.count = 0;
        if (tok_encode(t, text.data, text.len, 0, &ids, &e) < 0) {
            printf("%s\n", e.msg);
            exit(1);
        }
        double took = clock_s() - start;
        if (i == 0) cold = took;
        if (took < best) best = took;
    }
    str back;
    str_init(&back);
    double start = clock_s();
    if (tok_decode(t, ids.data, ids.count, false, &back, &e) < 0 || back.len != text.len ||
        memcmp(back.data, text.data, text.len) != 0) {
        printf("%s %s: the text does not come back\n", name, what);
        exit(1);
    }
    double decode = clock_s() - start;
    printf("| %-22s | %-12s | %8.1f | %8.1f | %8.2f | %9.1f |\n", name, what, (double)text.len / 1e6 / best,
           (double)text.len / 1e6 / cold, (double)text.len / (double)ids.count, (double)text.len / 1e6 / decode);
    str_deinit(&back);
    tok_ids_deinit(&ids);
}

static tok *open_timed(const char *name, const char *path) {
    double best = 1e9;
    tok   *t = NULL;
    err    e = { 0 };
    for (int i = 0; i < 5; i++) {
        tok_free(t);
        double start = clock_s();
        if (bundle_tokenizer_open_path(&t, path, NULL, &e) < 0) {
            printf("%s\n", e.msg);
            exit(1);
        }
        if (clock_s() - start < best) best = clock_s() - start;
    }
    printf("open %-28s %7d tokens  %7.1f ms\n", name, tok_count(t), best * 1e3);
    return t;
}

static void table_head(void) {
    printf("\n| %-22s | %-12s | %8s | %8s | %8s | %9s |\n", "vocabulary", "text", "MB/s", "cold", "B/token", "decode");
    printf("|------------------------|--------------|----------|----------|----------|-----------|\n");
}

int main(int argc, char **argv) {
    str        prose, code;
    vocabulary v = { 0 };
    err        e = { 0 };
    char       dir[] = "/tmp/hearth-bench-XXXXXX";
    if (!mkdtemp(dir)) return 1;
    str_init(&prose);
    str_init(&code);
    make_prose(&prose);
    make_code(&code);
    make_vocabulary(&v);
    char *json = path_join(dir, "tokenizer.json"), *gguf_path = path_join(dir, "vocab.gguf");
    if (write_json(&v, json, &e) < 0 || write_gguf(&v, gguf_path, &e) < 0) {
        printf("%s\n", e.msg);
        return 1;
    }
    const char *corpus = getenv("HEARTH_CORPUS");
    char       *gpt2 = path_join(corpus && *corpus ? corpus : "../shared/corpus", "vocab/gpt-2.gguf");
    tok *t[3] = { NULL, open_timed("llama-3-like, tokenizer.json", json), open_timed("llama-3-like, GGUF", gguf_path) };
    if (file_exists(gpt2))
        t[0] = open_timed("gpt-2, GGUF", gpt2);
    else
        printf("gpt-2: skipped, %s is not there\n", gpt2);
    table_head();
    static const char *const names[] = { "gpt-2", "llama-3-like (json)", "llama-3-like (gguf)" };
    for (int i = 0; i < 3; i++) {
        if (!t[i]) continue;
        encode_row(names[i], "prose", t[i], (view){ prose.data, prose.len });
        encode_row(names[i], "source code", t[i], (view){ code.data, code.len });
        for (int k = 1; k < argc; k++) {
            char  *data;
            size_t bytes;
            if (file_read(&data, &bytes, argv[k], (size_t)256 << 20, &e) < 0) {
                printf("%s\n", e.msg);
                return 1;
            }
            const char *slash = strrchr(argv[k], '/');
            encode_row(names[i], slash ? slash + 1 : argv[k], t[i], (view){ data, bytes });
            free(data);
        }
    }
    for (int i = 0; i < 3; i++) tok_free(t[i]);
    unlink(json);
    unlink(gguf_path);
    rmdir(dir);
    free(json);
    free(gguf_path);
    free(gpt2);
    free(v.tokens);
    free(v.merges);
    str_deinit(&v.text);
    str_deinit(&prose);
    str_deinit(&code);
    return 0;
}
