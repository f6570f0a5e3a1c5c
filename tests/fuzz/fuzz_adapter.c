/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the input as an adapter for a small model: a first byte of 'g' and a GGUF file, or two bytes with the length of
 * adapter_config.json, that text, and a safetensors file. What is accepted becomes a set, and every number of it is
 * touched. */
#include "nn/adapter.h"
#include "nn/bound.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DIM = 8, FF = 12, VOCAB = 10, EXPERTS = 2, MATS = 7 };

static float       values[VOCAB * FF * EXPERTS];
static tensor_mat  at[MATS][EXPERTS];
static nn_mat      mats[MATS];
static nn_bound    bound[MATS + 1];
static nn_op       ops[MATS + 1];
static nn_buf_info bufs[MATS + 2];

static const struct {
    const char *gguf, *hf;
    int         rows, cols, stack, first, total;
    bool        rotary;
} shapes[MATS] = {
    { "token_embd", "model.embed_tokens", VOCAB, DIM, 0, 0, VOCAB, false },
    { "blk.0.attn_q", "model.layers.0.self_attn.q_proj", DIM, DIM, 0, 0, DIM, true },
    { "blk.0.attn_kv", "model.layers.0.self_attn.kv_proj", DIM, DIM, 0, DIM, 2 * DIM, false },
    { "blk.0.ffn_gate#0/2", "model.layers.0.mlp.gate_up_proj#0/2", FF, DIM, 0, 0, FF, false },
    { "blk.0.ffn_down", "model.layers.0.mlp.down_proj", DIM, FF, 0, 0, DIM, false },
    { "blk.1.ffn_up_exps", "model.layers.1.mlp.experts.*.up_proj|model.layers.1.mlp.experts.up_proj", FF, DIM, EXPERTS,
      0, FF, false },
    { "blk.1.ffn_down_exps", "model.layers.1.mlp.experts.*.down_proj|model.layers.1.mlp.experts.down_proj#1%2", DIM, FF,
      EXPERTS, 0, DIM, false },
};

static void make(nn_model *m, nn_tape *t, nn_arch *arch, nn_dims *d) {
    static const char *const names[] = { "llama", NULL };
    for (int i = 0; i < VOCAB * FF * EXPERTS; i++) values[i] = (float)(i % 7) - 3;
    *arch = (nn_arch){ .names = names, .permuted_qk = true };
    *d = (nn_dims){ .n_layer = 2, .n_embd = DIM, .n_vocab = VOCAB - 1, .n_head = 2, .n_kv = 2, .head_dim = 4 };
    for (int i = 0; i < MATS; i++) {
        for (int e = 0; e < EXPERTS; e++)
            at[i][e] = (tensor_mat){ .type = TENSOR_F32,
                                     .rows = shapes[i].rows,
                                     .cols = shapes[i].cols,
                                     .data = values,
                                     .row_bytes = (size_t)shapes[i].cols * 4 };
        mats[i] = (nn_mat){ .name = shapes[i].hf,
                            .rows = shapes[i].rows,
                            .cols = shapes[i].cols,
                            .n_stack = shapes[i].stack,
                            .at = at[i] };
        bound[i] = (nn_bound){ .mat = &mats[i],
                               .gguf_prefix = "",
                               .hf_prefix = "",
                               .gguf = shapes[i].gguf,
                               .hf = shapes[i].hf,
                               .rows = shapes[i].rows,
                               .first = shapes[i].first,
                               .total = shapes[i].total,
                               .stack = shapes[i].stack,
                               .rotary = shapes[i].rotary,
                               .at_least = i == 0,
                               .next = i ? &bound[i - 1] : NULL };
        bufs[i + 1] = (nn_buf_info){ .mult = shapes[i].stack ? 2 : 1, .width = shapes[i].rows };
        ops[i] = (nn_op){ .kind = i == 0 ? NN_OP_EMBED : shapes[i].stack ? NN_OP_EXPERTS : NN_OP_LINEAR, .out = i + 1 };
        if (i == 0)
            ops[i].u.embed.table = &mats[i];
        else
            ops[i].u.linear.w = &mats[i];
    }
    bound[MATS] = (nn_bound){ .mat = &mats[0],
                              .gguf_prefix = "",
                              .hf_prefix = "",
                              .gguf = "output",
                              .hf = "lm_head",
                              .rows = VOCAB,
                              .total = VOCAB,
                              .at_least = true,
                              .head = true,
                              .next = &bound[MATS - 1] };
    bufs[MATS + 1] = (nn_buf_info){ .mult = 1, .width = VOCAB };
    ops[MATS] = (nn_op){ .kind = NN_OP_LINEAR, .out = MATS + 1, .u.linear.w = &mats[0] };
    *t = (nn_tape){ .ops = ops, .n_ops = MATS + 1, .bufs = bufs, .n_bufs = MATS + 2 };
    *m = (nn_model){ .arch = arch, .dims = d, .tape = t, .bound = &bound[MATS] };
}

static volatile uint64_t sink;

static void touch(const nn_adapter *a) {
    for (int i = 0; i < a->n_patches; i++) {
        const nn_patch *p = &a->patches[i];
        for (int e = 0; p->lora && e < (p->mat->n_stack ? p->mat->n_stack : 1); e++) {
            const nn_lora *l = &p->lora[e];
            for (int64_t k = 0; k < l->rank * l->in; k++) sink += nn_lora_a(l, k / l->in, k % l->in) > 0;
            for (int64_t k = 0; k < l->used * l->out; k++) sink += nn_lora_b(l, k / l->used, k % l->used) > 0;
        }
        for (int64_t r = 0; r < p->mat->rows; r++)
            sink += (p->magnitude && p->magnitude[r] > p->w2[r]) + (p->out_gain && p->out_gain[r] > 0);
        for (int64_t c = 0; c < p->mat->cols; c++) sink += p->in_gain && p->in_gain[c] > 0;
    }
    for (int i = 0; i < a->n_invocation; i++) sink += (uint64_t)a->invocation[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    nn_model    m;
    nn_tape     t;
    nn_arch     arch;
    nn_dims     d;
    nn_adapter *a = NULL;
    err         e = { 0 };
    if (size < 3) return 0;
    make(&m, &t, &arch, &d);
    size_t n = data[0] | (size_t)data[1] << 8;
    int    rc;
    /* The last byte belongs to the numbers, or to nothing: it also says how they are kept. */
    lowrank_type type = (lowrank_type)(data[size - 1] % 4);
    if (data[0] == 'g') {
        rc = nn_adapter_read(&a, &m, NULL, 0, data + 1, size - 1, type, &e);
    } else {
        if (n > size - 2) n = size - 2;
        rc = nn_adapter_read(&a, &m, (const char *)data + 2, n, data + 2 + n, size - 2 - n, type, &e);
    }
    if (rc < 0 && (a || e.code != rc || !e.msg[0])) abort();
    if (rc == 0) {
        nn_adapter_set *s = NULL;
        touch(a);
        if (nn_adapter_set_open(&s, &m, &(nn_adapter_use){ a, 0.5f }, 1, &e) < 0) abort();
        nn_adapter_set_free(s);
    }
    nn_adapter_free(a);
    return 0;
}
