/* SPDX-License-Identifier: Apache-2.0 */
/* The published mixes: how many tensors of four model shapes get which type. The counts are facts about files that the
 * widely used quantizer makes, taken from its own records of those shapes. */
#include "unit/support/support.h"

#include "convert/mix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int  layers, heads, kv_heads;
    bool output; /* has a matrix of its own for it */
} shapes[] = {
    { 28, 16, 8, true },
    { 40, 40, 8, true },
    { 80, 64, 8, true },
    { 34, 8, 4, false },
};

static const struct {
    int         shape;
    const char *mix, *counts;
} facts[] = {
    { 0, "Q4_0", "Q4_0:197 Q6_K:1" },
    { 0, "Q4_1", "Q4_1:197 Q6_K:1" },
    { 0, "Q8_0", "Q8_0:198" },
    { 0, "Q5_0", "Q5_0:197 Q6_K:1" },
    { 0, "Q5_1", "Q5_1:197 Q6_K:1" },
    { 0, "Q2_K", "Q2_K:113 Q3_K:84 Q6_K:1" },
    { 0, "Q3_K_S", "Q3_K:197 Q6_K:1" },
    { 0, "Q3_K_M", "Q3_K:113 Q4_K:81 Q5_K:3 Q6_K:1" },
    { 0, "Q3_K_L", "Q3_K:113 Q5_K:84 Q6_K:1" },
    { 0, "Q4_K_S", "Q4_K:190 Q5_K:7 Q6_K:1" },
    { 0, "Q4_K_M", "Q4_K:169 Q6_K:29" },
    { 0, "Q5_K_S", "Q5_K:197 Q6_K:1" },
    { 0, "Q5_K_M", "Q5_K:169 Q6_K:29" },
    { 0, "Q6_K", "Q6_K:198" },
    { 0, "IQ2_XXS", "IQ2_XXS:165 Q2_K:32 Q5_K:1" },
    { 0, "IQ2_XS", "IQ2_XS:165 Q2_K:32 Q5_K:1" },
    { 0, "Q2_K_S", "Q2_K:194 Q4_K:3 Q6_K:1" },
    { 0, "IQ3_XS", "IQ3_S:99 IQ3_XXS:98 Q6_K:1" },
    { 0, "IQ3_XXS", "IQ2_S:56 IQ3_S:57 IQ3_XXS:56 Q3_K:25 Q4_K:3 Q5_K:1" },
    { 0, "IQ1_S", "IQ1_S:137 IQ2_XXS:28 Q2_K:32 Q5_K:1" },
    { 0, "IQ4_NL", "IQ4_NL:194 Q5_K:3 Q6_K:1" },
    { 0, "IQ3_S", "IQ3_S:197 Q6_K:1" },
    { 0, "IQ3_M", "IQ3_S:138 Q4_K:59 Q6_K:1" },
    { 0, "IQ2_S", "IQ2_XS:137 IQ3_S:60 Q5_K:1" },
    { 0, "IQ2_M", "IQ2_S:137 IQ3_S:60 Q5_K:1" },
    { 0, "IQ4_XS", "IQ4_XS:194 Q5_K:3 Q6_K:1" },
    { 0, "IQ1_M", "IQ1_M:137 IQ2_XXS:28 Q2_K:32 Q5_K:1" },
    { 0, "TQ1_0", "Q4_K:1 Q6_K:1 TQ1_0:196" },
    { 0, "TQ2_0", "Q4_K:1 Q6_K:1 TQ2_0:196" },
    { 1, "Q4_0", "Q4_0:281 Q6_K:1" },
    { 1, "Q4_1", "Q4_1:281 Q6_K:1" },
    { 1, "Q8_0", "Q8_0:282" },
    { 1, "Q5_0", "Q5_0:281 Q6_K:1" },
    { 1, "Q5_1", "Q5_1:281 Q6_K:1" },
    { 1, "Q2_K", "Q2_K:161 Q3_K:80 Q4_K:40 Q6_K:1" },
    { 1, "Q3_K_S", "Q3_K:281 Q6_K:1" },
    { 1, "Q3_K_M", "Q3_K:161 Q4_K:116 Q5_K:4 Q6_K:1" },
    { 1, "Q3_K_L", "Q3_K:161 Q5_K:120 Q6_K:1" },
    { 1, "Q4_K_S", "Q4_K:272 Q5_K:9 Q6_K:1" },
    { 1, "Q4_K_M", "Q4_K:241 Q6_K:41" },
    { 1, "Q5_K_S", "Q5_K:281 Q6_K:1" },
    { 1, "Q5_K_M", "Q5_K:241 Q6_K:41" },
    { 1, "Q6_K", "Q6_K:282" },
    { 1, "IQ2_XXS", "IQ2_XXS:235 Q2_K:6 Q4_K:40 Q5_K:1" },
    { 1, "IQ2_XS", "IQ2_XS:235 Q2_K:6 Q4_K:40 Q5_K:1" },
    { 1, "Q2_K_S", "Q2_K:236 Q4_K:45 Q6_K:1" },
    { 1, "IQ3_XS", "IQ3_S:101 IQ3_XXS:140 Q4_K:40 Q6_K:1" },
    { 1, "IQ3_XXS", "IQ2_S:80 IQ3_S:41 IQ3_XXS:80 Q3_K:35 Q4_K:45 Q5_K:1" },
    { 1, "IQ1_S", "IQ1_S:195 IQ2_XXS:40 Q2_K:6 Q4_K:40 Q5_K:1" },
    { 1, "IQ4_NL", "IQ4_NL:236 Q5_K:45 Q6_K:1" },
    { 1, "IQ3_S", "IQ3_S:241 Q4_K:40 Q6_K:1" },
    { 1, "IQ3_M", "IQ3_S:196 Q4_K:85 Q6_K:1" },
    { 1, "IQ2_S", "IQ2_XS:195 IQ3_S:46 Q4_K:40 Q5_K:1" },
    { 1, "IQ2_M", "IQ2_S:195 IQ3_S:46 Q4_K:40 Q5_K:1" },
    { 1, "IQ4_XS", "IQ4_XS:236 Q5_K:45 Q6_K:1" },
    { 1, "IQ1_M", "IQ1_M:195 IQ2_XXS:40 Q2_K:6 Q4_K:40 Q5_K:1" },
    { 1, "TQ1_0", "Q4_K:1 Q6_K:1 TQ1_0:280" },
    { 1, "TQ2_0", "Q4_K:1 Q6_K:1 TQ2_0:280" },
    { 2, "Q4_0", "Q4_0:561 Q6_K:1" },
    { 2, "Q4_1", "Q4_1:561 Q6_K:1" },
    { 2, "Q8_0", "Q8_0:562" },
    { 2, "Q5_0", "Q5_0:561 Q6_K:1" },
    { 2, "Q5_1", "Q5_1:561 Q6_K:1" },
    { 2, "Q2_K", "Q2_K:321 Q3_K:160 Q5_K:80 Q6_K:1" },
    { 2, "Q3_K_S", "Q3_K:481 Q5_K:80 Q6_K:1" },
    { 2, "Q3_K_M", "Q3_K:321 Q4_K:155 Q5_K:85 Q6_K:1" },
    { 2, "Q3_K_L", "Q3_K:321 Q5_K:240 Q6_K:1" },
    { 2, "Q4_K_S", "Q4_K:471 Q5_K:90 Q6_K:1" },
    { 2, "Q4_K_M", "Q4_K:441 Q5_K:40 Q6_K:81" },
    { 2, "Q5_K_S", "Q5_K:561 Q6_K:1" },
    { 2, "Q5_K_M", "Q5_K:481 Q6_K:81" },
    { 2, "Q6_K", "Q6_K:562" },
    { 2, "IQ2_XXS", "IQ2_XXS:470 Q2_K:11 Q4_K:80 Q5_K:1" },
    { 2, "IQ2_XS", "IQ2_XS:470 Q2_K:11 Q4_K:80 Q5_K:1" },
    { 2, "Q2_K_S", "Q2_K:471 Q4_K:10 Q5_K:80 Q6_K:1" },
    { 2, "IQ3_XS", "IQ3_S:201 IQ3_XXS:280 Q5_K:80 Q6_K:1" },
    { 2, "IQ3_XXS", "IQ2_S:160 IQ3_S:81 IQ3_XXS:160 Q3_K:70 Q4_K:10 Q5_K:81" },
    { 2, "IQ1_S", "IQ1_S:390 IQ2_XXS:80 Q2_K:11 Q4_K:80 Q5_K:1" },
    { 2, "IQ4_NL", "IQ4_NL:471 Q5_K:90 Q6_K:1" },
    { 2, "IQ3_S", "IQ3_S:481 Q5_K:80 Q6_K:1" },
    { 2, "IQ3_M", "IQ3_S:391 Q4_K:90 Q5_K:80 Q6_K:1" },
    { 2, "IQ2_S", "IQ2_XS:390 IQ3_S:91 Q4_K:80 Q5_K:1" },
    { 2, "IQ2_M", "IQ2_S:390 IQ3_S:91 Q4_K:80 Q5_K:1" },
    { 2, "IQ4_XS", "IQ4_XS:471 Q5_K:90 Q6_K:1" },
    { 2, "IQ1_M", "IQ1_M:390 IQ2_XXS:80 Q2_K:11 Q4_K:80 Q5_K:1" },
    { 2, "TQ1_0", "Q4_K:1 Q6_K:1 TQ1_0:560" },
    { 2, "TQ2_0", "Q4_K:1 Q6_K:1 TQ2_0:560" },
    { 3, "Q4_0", "Q4_0:238 Q6_K:1" },
    { 3, "Q4_1", "Q4_1:238 Q6_K:1" },
    { 3, "Q8_0", "Q8_0:239" },
    { 3, "Q5_0", "Q5_0:238 Q6_K:1" },
    { 3, "Q5_1", "Q5_1:238 Q6_K:1" },
    { 3, "Q2_K", "Q2_K:136 Q3_K:102 Q6_K:1" },
    { 3, "Q3_K_S", "Q3_K:238 Q6_K:1" },
    { 3, "Q3_K_M", "Q3_K:136 Q4_K:98 Q5_K:4 Q6_K:1" },
    { 3, "Q3_K_L", "Q3_K:136 Q5_K:102 Q6_K:1" },
    { 3, "Q4_K_S", "Q4_K:230 Q5_K:8 Q6_K:1" },
    { 3, "Q4_K_M", "Q4_K:204 Q6_K:35" },
    { 3, "Q5_K_S", "Q5_K:238 Q6_K:1" },
    { 3, "Q5_K_M", "Q5_K:204 Q6_K:35" },
    { 3, "Q6_K", "Q6_K:239" },
    { 3, "IQ2_XXS", "IQ2_XXS:200 Q2_K:38 Q5_K:1" },
    { 3, "IQ2_XS", "IQ2_XS:200 Q2_K:38 Q5_K:1" },
    { 3, "Q2_K_S", "Q2_K:234 Q4_K:4 Q6_K:1" },
    { 3, "IQ3_XS", "IQ3_S:120 IQ3_XXS:118 Q6_K:1" },
    { 3, "IQ3_XXS", "IQ2_S:68 IQ3_S:68 IQ3_XXS:68 Q3_K:30 Q4_K:4 Q5_K:1" },
    { 3, "IQ1_S", "IQ1_S:166 IQ2_XXS:34 Q2_K:38 Q5_K:1" },
    { 3, "IQ4_NL", "IQ4_NL:234 Q5_K:4 Q6_K:1" },
    { 3, "IQ3_S", "IQ3_S:238 Q6_K:1" },
    { 3, "IQ3_M", "IQ3_S:166 Q4_K:72 Q6_K:1" },
    { 3, "IQ2_S", "IQ2_XS:166 IQ3_S:72 Q5_K:1" },
    { 3, "IQ2_M", "IQ2_S:166 IQ3_S:72 Q5_K:1" },
    { 3, "IQ4_XS", "IQ4_XS:234 Q5_K:4 Q6_K:1" },
    { 3, "IQ1_M", "IQ1_M:166 IQ2_XXS:34 Q2_K:38 Q5_K:1" },
    { 3, "TQ1_0", "Q6_K:1 TQ1_0:238" },
    { 3, "TQ2_0", "Q6_K:1 TQ2_0:238" },
};

enum { MAX_TENSORS = 600, NAME = 48 };

typedef struct model {
    mix_tensor t[MAX_TENSORS];
    char       names[MAX_TENSORS][NAME];
    size_t     n;
} model;

static void add(model *m, const char *name) {
    assert_true(m->n < MAX_TENSORS);
    snprintf(m->names[m->n], NAME, "%s", name);
    m->t[m->n] = (mix_tensor){ .name = m->names[m->n], .n_dims = 2, .cols = 1024, .stack = 1, .type = TENSOR_F16 };
    m->n++;
}

static void make(model *m, int shape) {
    static const char *const parts[] = {
        "attn_k", "attn_output", "attn_q", "attn_v", "ffn_down", "ffn_gate", "ffn_up"
    };
    m->n = 0;
    add(m, "token_embd.weight");
    for (int i = 0; i < shapes[shape].layers; i++) {
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            char name[NAME];
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, parts[k]);
            add(m, name);
        }
    }
    if (shapes[shape].output) add(m, "output.weight");
}

/* "Q4_K:3 Q6_K:1", by name. */
static void count(const model *m, char *out, size_t bytes) {
    const char *order[64];
    int         n_of[64] = { 0 }, n = 0;
    for (size_t i = 0; i < m->n; i++) {
        const char *name = tensor_type_name((int)m->t[i].type);
        int         k = 0;
        while (k < n && strcmp(order[k], name) != 0) k++;
        if (k == n) order[n++] = name;
        n_of[k]++;
    }
    out[0] = '\0';
    for (int done = 0; done < n; done++) {
        int least = -1;
        for (int k = 0; k < n; k++)
            if (n_of[k] && (least < 0 || strcmp(order[k], order[least]) < 0)) least = k;
        size_t used = strlen(out);
        snprintf(out + used, bytes - used, "%s%s:%d", used ? " " : "", order[least], n_of[least]);
        n_of[least] = 0;
    }
}

static void test_counts(void **state) {
    static model m;
    (void)state;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const mix *x = NULL;
        char       got[200];
        int        s = facts[i].shape;
        mix_model  about = { .n_layers = shapes[s].layers, .heads = shapes[s].heads, .kv_heads = shapes[s].kv_heads };
        assert_int_equal(mix_find(&x, facts[i].mix, NULL), 0);
        make(&m, s);
        assert_int_equal(mix_types(x, &about, m.t, m.n, false, NULL, NULL), 0);
        count(&m, got, sizeof got);
        if (strcmp(got, facts[i].counts) != 0) printf("shape %d, %s\n", s, facts[i].mix);
        assert_string_equal(got, facts[i].counts);
    }
}

static void test_which(void **state) {
    static model m;
    const mix   *x = NULL;
    mix_model    about = { .n_layers = 8, .heads = 8, .kv_heads = 8 };
    int          forced[MAX_TENSORS];
    (void)state;
    memset(&m, 0, sizeof m);
    assert_int_equal(mix_find(&x, "q4_k", NULL), 0);
    assert_string_equal(mix_name(x), "Q4_K_M");
    add(&m, "blk.0.attn_v.weight");
    add(&m, "blk.0.attn_norm.weight");
    add(&m, "blk.0.ffn_gate_inp.weight");
    add(&m, "blk.0.attn_q.weight");
    add(&m, "blk.0.attn_k.weight");
    m.t[4].cols = 288; /* not whole blocks of 256 */
    for (size_t i = 0; i < m.n; i++) forced[i] = -1;
    forced[3] = TENSOR_Q8_0;
    assert_int_equal(mix_types(x, &about, m.t, m.n, false, forced, NULL), 0);
    assert_int_equal(m.t[0].type, TENSOR_Q6_K);
    assert_int_equal(m.t[1].type, TENSOR_F16);
    assert_int_equal(m.t[2].type, TENSOR_F16);
    assert_int_equal(m.t[3].type, TENSOR_Q8_0);
    assert_int_equal(m.t[4].type, TENSOR_Q5_0);
    assert_true(m.t[4].fallback && !m.t[3].fallback);
    assert_int_equal(mix_types(x, &about, m.t, m.n, true, NULL, NULL), 0);
    assert_int_equal(m.t[0].type, TENSOR_Q4_K);
    assert_int_equal(mix_fit(TENSOR_IQ2_S, 32), TENSOR_IQ4_NL);
    assert_int_equal(mix_fit(TENSOR_Q6_K, 8), TENSOR_F16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_which),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
