/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary frequencies from a model's metadata.
 *
 * config.json spells the rules as rope_parameters (flat, or one object per layer type) or as rope_theta with
 * rope_scaling; GGUF as rope.* keys, with the factors of llama3, longrope and proportional scaling in a tensor that
 * divides the plain frequencies. Where a rule depends on the length of the sequence (dynamic NTK, longrope), the length
 * is the one that the model was opened for, so that a token's rotation never depends on how its sequence was cut.
 * ALiBi's slopes, the other way to tell positions apart, stand here too.
 */
#include "nn/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#ifndef M_PI
#define M_PI 3.14159265358979323846
#endif

static const float STILL = 1e20f; /* a factor that no rule for turning gives */

/* The config.json paths under which one rule's field may stand. */
typedef struct paths {
    char text[400];
} paths;

static paths hf_paths(const nn_rope_want *w, const char *field) {
    paths p = { "" };
    int   n = 0;
    if (w->layer_type)
        n += snprintf(p.text, sizeof p.text, "rope_parameters.%s.%s|rope_scaling.%s.%s", w->layer_type, field,
                      w->layer_type, field);
    if (!w->unscaled)
        snprintf(p.text + n, sizeof p.text - (size_t)n, "%srope_parameters.%s|rope_scaling.%s", n ? "|" : "", field,
                 field);
    return p;
}

/* Sliding windows are short: a rule for long contexts is none of theirs. */
static bool is_replaced(const nn_config *c, const nn_rope_want *w) {
    return c->rope_type && !w->unscaled && (!w->layer_type || strcmp(w->layer_type, "full_attention") == 0);
}

/* What a rule from outside cannot replace is refused. */
static const char *replaced_type(nn_config *c, const nn_rope_want *w) {
    if (w->mla)
        nn_config_fail(c, "rope_scaling: this family scales its attention with its own rule; remove the setting");
    if (nn_config_gguf(c) && c->file &&
        (model_file_tensor(c->file, "rope_freqs.weight") || model_file_tensor(c->file, "rope_factors_long.weight")))
        nn_config_fail(c, "rope_scaling: the file brings factors for its frequencies; remove the setting");
    c->rope_replaced = true;
    return strcmp(c->rope_type, "none") == 0 ? "default" : c->rope_type;
}

static double rope_real(nn_config *c, const nn_rope_want *w, const char *gguf, const char *field, double dflt) {
    if (is_replaced(c, w) && strcmp(field, "factor") == 0 && c->rope_factor > 0) return c->rope_factor;
    paths p = hf_paths(w, field);
    return nn_config_real(c, gguf, *p.text ? p.text : NULL, dflt);
}

static const char *rope_type(nn_config *c, const nn_rope_want *w) {
    paths       p = hf_paths(w, "rope_type"), old = hf_paths(w, "type");
    char        both[sizeof p.text * 2];
    const char *type;
    if (is_replaced(c, w)) return replaced_type(c, w);
    if (nn_config_gguf(c)) {
        if (w->unscaled) return "default";
        /* Phi-3 files bring the factors without naming the rule. */
        if (c->file && model_file_tensor(c->file, "rope_factors_long.weight")) return "longrope";
        type = nn_config_text(c, "rope.scaling.type", NULL);
        return type && strcmp(type, "none") != 0 ? type : "default";
    }
    snprintf(both, sizeof both, "%s|%s", p.text, old.text);
    type = *p.text ? nn_config_text(c, NULL, both) : NULL;
    return type ? type : "default";
}

static double read_base(nn_config *c, const nn_rope_want *w) {
    paths  p;
    char   all[sizeof p.text + 128];
    double dflt = w->base > 0 ? w->base : 10000.0;
    int    n = 0;
    if (w->layer_type) n = snprintf(all, sizeof all, "rope_parameters.%s.rope_theta|", w->layer_type);
    if (w->hf_base)
        snprintf(all + n, sizeof all - (size_t)n, "%s", w->hf_base);
    else
        snprintf(all + n, sizeof all - (size_t)n, "rope_parameters.rope_theta|rope_theta|rotary_emb_base");
    double base = nn_config_real(c, w->gguf_base ? w->gguf_base : "rope.freq_base", all, dflt);
    if (!(base > 1)) nn_config_fail(c, "the rotary base is %g; it must be greater than 1", base);
    nn_config_note_real(c, w->gguf_base ? w->gguf_base : "rope.freq_base", base);
    return base > 1 ? base : 10000.0;
}

static int read_n_rot(nn_config *c, const nn_rope_want *w, int dim, bool proportional) {
    const char *gguf = w->gguf_dim ? w->gguf_dim : "rope.dimension_count";
    int         n_rot = dim;
    double      share = w->partial > 0 ? w->partial : 1.0;
    if (nn_config_gguf(c)) {
        n_rot = (int)nn_config_int(c, gguf, NULL, share <= 1 ? (int64_t)(dim * share) : dim);
    } else if (!proportional && !w->mla) { /* a factor there is the share of the whole head */
        char  all[600];
        paths p = hf_paths(w, "partial_rotary_factor");
        snprintf(all, sizeof all, "%s%spartial_rotary_factor|rotary_pct", p.text, *p.text ? "|" : "");
        share = nn_config_real(c, NULL, all, share);
        if (!(share >= 0 && share <= 1)) {
            nn_config_fail(c, "%g of a head of %d elements cannot be rotary", share, dim);
            return 0;
        }
        n_rot = (int)(dim * share);
    }
    if (n_rot < 0 || n_rot > dim || n_rot % 2) {
        nn_config_fail(c, "%d rotary elements do not fit a head of %d", n_rot, dim);
        return 0;
    }
    nn_config_note_int(c, gguf, n_rot);
    return n_rot;
}

static double original_context(nn_config *c, const nn_dims *d, const nn_rope_want *w) {
    paths p = hf_paths(w, "original_max_position_embeddings");
    char  all[600];
    if (is_replaced(c, w) && c->rope_original_context > 0) return c->rope_original_context;
    snprintf(all, sizeof all, "%s%soriginal_max_position_embeddings", p.text, *p.text ? "|" : "");
    double length = nn_config_real(c, "rope.scaling.original_context_length", all, 0);
    if (!(length > 0)) return d->context;
    if (length > 1e15) {
        nn_config_fail(c, "an original context of %g positions", length);
        return d->context;
    }
    nn_config_note_int(c, "rope.scaling.original_context_length", (int64_t)length); /* readers want a whole number */
    return length;
}

static double mscale_of(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * log(factor) + 1.0; }

static double yarn_factor(nn_config *c, const nn_dims *d, const nn_rope_want *w) {
    double orig = original_context(c, d, w);
    double factor = rope_real(c, w, "rope.scaling.factor", "factor", 0);
    return factor > 0 ? factor : orig > 0 && d->context > 0 ? d->context / orig : 1.0;
}

static double yarn_scale(nn_config *c, const nn_rope_want *w, double factor) {
    double given = rope_real(c, w, "rope.scaling.yarn_attn_factor", "attention_factor", 0);
    double all = nn_config_gguf(c)
                     ? nn_config_real(c, "rope.scaling.yarn_log_multiplier|rope.scaling.mscale_all_dim", NULL, 0)
                     : rope_real(c, w, NULL, "mscale_all_dim", 0);
    double one = nn_config_gguf(c) ? (all != 0 ? 1.0 : 0.0) : rope_real(c, w, NULL, "mscale", 0);
    if (!nn_config_gguf(c) && all != 0)
        nn_config_note_real(c, "rope.scaling.yarn_log_multiplier", w->mla ? 0.1 * all : all);
    if (given > 0) return given;
    if (nn_config_gguf(c) && w->mla && all != 0) return 1.0;
    return one != 0 && all != 0 ? mscale_of(factor, one) / mscale_of(factor, all) : mscale_of(factor, 1.0);
}

double nn_rope_yarn_mscale(nn_config *c) {
    const nn_rope_want w = { 0 };
    double             factor, all;
    if (strcmp(rope_type(c, &w), "yarn") != 0) return 1.0;
    factor = rope_real(c, &w, "rope.scaling.factor", "factor", 1.0);
    all = nn_config_gguf(c) ? nn_config_real(c, "rope.scaling.yarn_log_multiplier", NULL, 0) / 0.1
                            : rope_real(c, &w, NULL, "mscale_all_dim", 0);
    return all != 0 ? mscale_of(factor, all) : 1.0;
}

static void yarn(nn_config *c, const nn_dims *d, const nn_rope_want *w, nn_rope *r, double base, float *freq) {
    int    dim = r->n_rot;
    double orig = original_context(c, d, w), factor = yarn_factor(c, d, w);
    double fast = rope_real(c, w, "rope.scaling.yarn_beta_fast|rope.scaling.beta_fast", "beta_fast", 32);
    double slow = rope_real(c, w, "rope.scaling.yarn_beta_slow|rope.scaling.beta_slow", "beta_slow", 1);
    paths  p = hf_paths(w, "truncate");
    bool   truncate = nn_config_bool(c, NULL, *p.text ? p.text : NULL, !w->untruncated);
    if (!(orig > 0) || !(factor > 0) || !(fast > 0) || !(slow > 0)) {
        nn_config_fail(c, "YaRN needs positive values for its factor, original context length and betas");
        return;
    }
    double low = dim * log(orig / (fast * 2 * M_PI)) / (2 * log(base));
    double high = dim * log(orig / (slow * 2 * M_PI)) / (2 * log(base));
    if (truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, dim - 1);
    if (low == high) high += 0.001;
    for (int i = 0; i < dim / 2; i++) {
        double plain = pow(base, -2.0 * i / dim);
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        freq[i] = (float)(plain / factor * ramp + plain * (1 - ramp));
    }
    r->scale = (float)yarn_scale(c, w, factor);
    nn_config_note_text(c, "rope.scaling.type", "yarn");
    nn_config_note_real(c, "rope.scaling.factor", factor);
    nn_config_note_int(c, "rope.scaling.original_context_length", (int64_t)orig);
}

static void llama3(nn_config *c, const nn_dims *d, const nn_rope_want *w, nn_rope *r, double base, float *freq) {
    double factor = rope_real(c, w, NULL, "factor", 8), low = rope_real(c, w, NULL, "low_freq_factor", 1);
    double high = rope_real(c, w, NULL, "high_freq_factor", 4), orig = original_context(c, d, w);
    int    n = r->n_rot / 2, all = w->factors > n ? w->factors : n;
    float *f = nn_config_alloc(c, (size_t)all, sizeof *f);
    if (c->failed) return;
    for (int i = n; i < all; i++) f[i] = 1;
    if (!(factor > 0) || !(low > 0) || !(high > low) || !(orig > 0)) {
        nn_config_fail(c, "llama3 rotary scaling needs 0 < low_freq_factor < high_freq_factor and a positive factor");
        return;
    }
    for (int i = 0; i < n; i++) {
        double wave = 2 * M_PI / pow(base, -2.0 * i / r->n_rot);
        if (wave < orig / high)
            f[i] = 1;
        else if (wave > orig / low)
            f[i] = (float)factor;
        else {
            double smooth = (orig / wave - low) / (high - low);
            f[i] = (float)(1 / ((1 - smooth) / factor + smooth));
        }
    }
    /* A GGUF carries them as a tensor. */
    for (int i = 0; i < n; i++) freq[i] = freq[i] / f[i];
    nn_config_note_tensor(c, "rope_freqs.weight", f, all);
}

static void longrope(nn_config *c, const nn_dims *d, const nn_rope_want *w, nn_rope *r, float *freq) {
    double       orig = original_context(c, d, w);
    double       length = c->rope_context > 0 ? c->rope_context : d->context;
    bool         is_long = length > orig;
    int          n = r->n_rot / 2, n_long = 0, n_short = 0;
    const float *fl, *fs;
    if (!(orig > 1)) {
        nn_config_fail(c, "longrope needs the original context length");
        return;
    }
    if (nn_config_gguf(c)) {
        fl = nn_config_tensor(c, "rope_factors_long.weight", n);
        fs = nn_config_tensor(c, "rope_factors_short.weight", n);
        n_long = fl ? n : 0;
        n_short = fs ? n : 0;
    } else {
        paths pl = hf_paths(w, "long_factor"), ps = hf_paths(w, "short_factor");
        fl = nn_config_reals(c, NULL, pl.text, &n_long);
        fs = nn_config_reals(c, NULL, ps.text, &n_short);
        nn_config_note_tensor(c, "rope_factors_long.weight", fl, n_long);
        nn_config_note_tensor(c, "rope_factors_short.weight", fs, n_short);
    }
    if (n_long != n || n_short != n) {
        nn_config_fail(c, "longrope needs %d long and %d short factors; there are %d and %d", n, n, n_long, n_short);
        return;
    }
    for (int i = 0; i < n; i++) freq[i] = freq[i] / (is_long ? fl : fs)[i];
    double factor = nn_config_gguf(c) ? 0 : rope_real(c, w, NULL, "factor", 0);
    if (!(factor > 0)) factor = d->context / orig;
    double scale = rope_real(c, w, "rope.scaling.attn_factor", "attention_factor", 0);
    if (!(scale > 0)) scale = factor <= 1 ? 1.0 : sqrt(1 + log(factor) / log(orig));
    if (w->mscales) scale = rope_real(c, w, NULL, is_long ? "long_mscale" : "short_mscale", scale);
    r->scale = (float)scale;
    nn_config_note_text(c, "rope.scaling.type", "longrope");
    nn_config_note_real(c, "rope.scaling.attn_factor", scale);
    nn_config_note_int(c, "rope.scaling.original_context_length", (int64_t)orig);
}

/* The first share of the pairs turns with frequencies of the whole head; the others stand still. */
static void proportional(nn_config *c, const nn_rope_want *w, nn_rope *r, double base, float *freq) {
    double share = rope_real(c, w, NULL, "partial_rotary_factor", 1.0), factor = rope_real(c, w, NULL, "factor", 1.0);
    int    n = r->n_rot / 2, turning = share >= 0 && share <= 1 ? (int)floor(share * r->n_rot / 2) : n;
    if (!(share >= 0 && share <= 1)) nn_config_fail(c, "partial_rotary_factor is %g", share);
    float *f = nn_config_alloc(c, (size_t)n, sizeof *f);
    for (int i = 0; i < n && !c->failed; i++) {
        f[i] = i < turning ? (float)factor : 1e30f;
        freq[i] = i < turning ? (float)(pow(base, -2.0 * i / r->n_rot) / factor) : 0.0f;
    }
    if (!c->failed) nn_config_note_tensor(c, "rope_freqs.weight", f, n);
}

/* HunYuan's rule, which stands for a factor and lengths: a larger base. */
static double larger_base(double base, double alpha, int n_rot) { return base * pow(alpha, n_rot / (n_rot - 2.0)); }

nn_rope nn_rope_read(nn_config *c, const nn_dims *d, nn_rope_want w) {
    nn_rope     r = { .scale = 1.0f, .interleaved = w.interleaved };
    int         dim = w.dim ? w.dim : d->head_dim;
    const char *type = rope_type(c, &w);
    double      base = read_base(c, &w);
    r.n_rot = read_n_rot(c, &w, dim, strcmp(type, "proportional") == 0);
    if (nn_config_gguf(c) && c->arch->permuted_qk) r.interleaved = true;
    float *freq = nn_config_alloc(c, (size_t)r.n_rot / 2 + 1, sizeof *freq);
    r.inv_freq = freq;
    if (c->failed) return r;
    if (w.alpha && nn_config_gguf(c) && r.n_rot > 2) {
        double alpha = nn_config_real(c, "rope.scaling.alpha", NULL, 0);
        if (alpha > 0) base = larger_base(base, alpha, r.n_rot);
    }
    for (int i = 0; i < r.n_rot / 2; i++) freq[i] = (float)pow(base, -2.0 * i / r.n_rot);

    if (strcmp(type, "linear") == 0) {
        double factor = rope_real(c, &w, "rope.scaling.factor", "factor", 1.0);
        nn_config_note_text(c, "rope.scaling.type", "linear");
        for (int i = 0; i < r.n_rot / 2 && factor > 0; i++) freq[i] = (float)(pow(base, -2.0 * i / r.n_rot) / factor);
    } else if (strcmp(type, "dynamic") == 0 || (w.alpha && strcmp(type, "xdrope") == 0)) {
        double factor = rope_real(c, &w, NULL, "factor", 1.0), length = fmax(c->rope_context, d->context);
        double alpha = rope_real(c, &w, NULL, "alpha", 0);
        if (alpha > 0 && r.n_rot > 2)
            base = larger_base(base, alpha, r.n_rot);
        else if (d->context > 0 && r.n_rot > 2)
            base *= pow(factor * length / d->context - (factor - 1), r.n_rot / (r.n_rot - 2.0));
        for (int i = 0; i < r.n_rot / 2; i++) freq[i] = (float)pow(base, -2.0 * i / r.n_rot);
        nn_config_note_real(c, w.gguf_base ? w.gguf_base : "rope.freq_base", base);
    } else if (strcmp(type, "yarn") == 0) {
        yarn(c, d, &w, &r, base, freq);
    } else if (strcmp(type, "llama3") == 0) {
        llama3(c, d, &w, &r, base, freq);
    } else if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0) {
        longrope(c, d, &w, &r, freq);
    } else if (strcmp(type, "proportional") == 0) {
        proportional(c, &w, &r, base, freq);
    } else if (strcmp(type, "default") != 0 && strcmp(type, "mrope") != 0) {
        nn_config_fail(c, "rotary scaling \"%s\" is not known", type);
    }
    if (nn_config_gguf(c) && !w.unscaled) {
        int          n = w.factors > r.n_rot / 2 ? w.factors : r.n_rot / 2;
        const float *factors = nn_config_tensor(c, "rope_freqs.weight", n);
        for (int i = 0; factors && i < r.n_rot / 2; i++)
            freq[i] = factors[i] < STILL ? freq[i] / factors[i] : 0.0f; /* 1e30 stands for pairs that do not turn */
    }
    return r;
}

void nn_rope_axes(nn_config *c, nn_rope *r, bool interleaved) {
    enum { AXES = 3 };
    static const char *const lists = "rope_parameters.mrope_section|rope_scaling.mrope_section";
    int                      n = 0, pairs = r->n_rot / 2;
    const float             *of = nn_config_reals(c, "rope.dimension_sections|rope.mrope_section", lists, &n);
    if (c->failed || n == 0) return;
    int *has = nn_config_alloc(c, AXES + 1, sizeof *has), sum = 0; /* GGUF has a fourth, unused */
    for (int a = 0; a < n; a++) {
        bool fine = of[a] >= 0 && of[a] <= (float)pairs && (a < AXES || of[a] == 0);
        if (a < AXES && fine) sum += has[a] = (int)of[a];
        if (!fine || n < AXES) {
            nn_config_fail(c, "rotary sections: %g pairs for axis %d of %d", (double)of[a], a, n);
            return;
        }
    }
    if (sum != pairs) {
        nn_config_fail(c, "rotary sections of %d, %d and %d for %d pairs", has[0], has[1], has[2], pairs);
        return;
    }
    uint8_t *axis = nn_config_alloc(c, (size_t)pairs, sizeof *axis);
    for (int i = 0; i < pairs && !c->failed; i++) {
        int a = i % AXES;
        if (interleaved)
            axis[i] = (uint8_t)(i < AXES * has[a] ? a : 0);
        else
            axis[i] = (uint8_t)(i < has[0] ? 0 : i < has[0] + has[1] ? 1 : 2);
    }
    nn_config_note_ints(c, "rope.dimension_sections", has, AXES + 1);
    if (!c->failed) r->axis_of = axis;
}

void nn_rope_axes_counted(nn_config *c, nn_rope *r) {
    enum { AXES = 4 };
    static const char *const lists = "rope_parameters.mrope_section|rope_scaling.mrope_section|"
                                     "rope_parameters.xdrope_section|rope_scaling.xdrope_section";
    int                      n = 0, pairs = r->n_rot / 2, at = 0;
    const float             *of = nn_config_reals(c, "rope.dimension_sections", lists, &n);
    uint8_t                 *axis = nn_config_alloc(c, (size_t)pairs + 1, sizeof *axis);
    int                     *has = nn_config_alloc(c, AXES, sizeof *has);
    if (c->failed || n == 0) return;
    for (int a = 0; a < n && n == AXES; a++) {
        bool fine = of[a] >= 1 && of[a] <= (float)(pairs - at) && of[a] == floorf(of[a]);
        if (!fine) {
            nn_config_fail(c, "rotary sections: %g pairs for axis %d of %d, of %d pairs", (double)of[a], a, n, pairs);
            return;
        }
        has[a] = (int)of[a];
        for (int end = at + has[a]; at < end; at++) axis[at] = (uint8_t)a;
    }
    if (n != AXES || at != pairs) {
        nn_config_fail(c, "rotary sections of %d axes, %d of %d pairs; %d axes are supported", n, at, pairs, AXES);
        return;
    }
    nn_config_note_ints(c, "rope.dimension_sections", has, AXES);
    r->axis_of = axis;
}

nn_rope nn_rope_grid(nn_config *c, int head_dim, double base) {
    if (head_dim < 4 || head_dim % 4) {
        nn_config_fail(c, "heads of %d cannot be turned by row and column", head_dim);
        return (nn_rope){ .scale = 1 };
    }
    int      pairs = head_dim / 2, half = pairs / 2;
    float   *freq = nn_config_alloc(c, (size_t)pairs, sizeof *freq);
    uint8_t *axis = nn_config_alloc(c, (size_t)pairs, sizeof *axis);
    for (int i = 0; freq && axis && i < pairs; i++) {
        freq[i] = (float)pow(base, -2.0 * (i % half) / pairs);
        axis[i] = (uint8_t)(i >= half);
    }
    return (nn_rope){ .n_rot = head_dim, .scale = 1, .inv_freq = freq, .axis_of = axis };
}

const float *nn_alibi_slopes(nn_config *c, int n_head, double bias) {
    float *out = nn_config_alloc(c, (size_t)n_head, sizeof *out);
    int    n = 1;
    while (2 * n <= n_head) n *= 2;
    for (int h = 0; h < n_head && !c->failed; h++) {
        double at = h < n ? (h + 1) / (double)n : (2 * (h - n) + 1) / (2.0 * n);
        out[h] = (float)exp2(-bias * at);
    }
    return out;
}
