/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/lives.h"

#include <stdlib.h>

uint32_t lives_number(const gpu_kernel *k, operand o) {
    return o.kind == SLOT_PRED ? o.at : o.kind == SLOT_32 ? k->n_pred + o.at : k->n_pred + k->n32 + o.at;
}

operand lives_operand(const gpu_kernel *k, uint32_t reg) {
    if (reg < k->n_pred) return (operand){ .at = reg, .kind = SLOT_PRED };
    if (reg < k->n_pred + k->n32) return (operand){ .at = reg - k->n_pred, .kind = SLOT_32 };
    return (operand){ .at = reg - k->n_pred - k->n32, .kind = SLOT_64 };
}

static void visit_operand(const gpu_kernel *k, operand o, bool written, lives_visit f, void *with) {
    if (o.kind != SLOT_NONE && !o.constant) f(with, lives_number(k, o), written);
}

void lives_each(const gpu_kernel *k, const insn *i, lives_visit f, void *with) {
    if (i->guarded) visit_operand(k, i->guard, false, f, with);
    for (int pass = 0; pass < 2; pass++) {
        const unsigned bits = pass ? i->writes : i->guarded ? (unsigned)(i->reads | i->writes) : i->reads;
        for (int n = 0; n < 5; n++) {
            if (bits >> n & 1) visit_operand(k, i->o[n], pass == 1, f, with);
        }
        for (int n = 0; n < 4; n++) {
            for (int j = 0; (bits >> (5 + n) & 1) && j < i->listed[n]; j++)
                visit_operand(k, i->list[n][j], pass == 1, f, with);
        }
    }
}

static void note_use(void *with, uint32_t reg, bool written) {
    code_block *b = with;
    if (written)
        lives_put(b->def, reg);
    else if (!lives_has(b->def, reg))
        lives_put(b->use, reg);
}

static int find_blocks(lives *w, err *e) {
    gpu_kernel *k = w->k;
    char       *leads = calloc((size_t)k->n_code + 1, 1);
    w->block_at = malloc(((size_t)k->n_code + 1) * sizeof *w->block_at);
    if (!leads || !w->block_at) {
        free(leads);
        return err_set_nomem(e);
    }
    leads[0] = 1;
    for (int i = 0; i < k->n_code; i++) {
        if (k->code[i].flow == FLOW_BRANCH) leads[k->code[i].target] = 1;
        if (k->code[i].flow == FLOW_BRANCH || k->code[i].flow == FLOW_EXIT) leads[i + 1] = 1;
    }
    for (int i = 0; i < k->n_code; i++) w->n_blocks += leads[i];
    w->blocks = calloc((size_t)w->n_blocks, sizeof *w->blocks);
    w->words = (w->n + 63) / 64;
    w->bits = calloc((size_t)w->n_blocks * 4 * w->words + 1, sizeof *w->bits);
    if (!w->blocks || !w->bits) {
        free(leads);
        return err_set_nomem(e);
    }
    for (int i = 0, b = -1; i < k->n_code; i++) {
        if (leads[i]) {
            b++;
            uint64_t *at = w->bits + (size_t)b * 4 * w->words;
            w->blocks[b] = (code_block){
                .from = i, .in = at, .out = at + w->words, .def = at + 2 * w->words, .use = at + 3 * w->words
            };
        }
        w->block_at[i] = b;
        w->blocks[b].to = i + 1;
        lives_each(k, &k->code[i], note_use, &w->blocks[b]);
    }
    free(leads);
    for (int b = 0; b < w->n_blocks; b++) {
        const insn *last = &k->code[w->blocks[b].to - 1];
        const bool  ends = (last->flow == FLOW_BRANCH || last->flow == FLOW_EXIT) && !last->guarded;
        w->blocks[b].next[0] = ends || w->blocks[b].to == k->n_code ? -1 : b + 1;
        w->blocks[b].next[1] = last->flow == FLOW_BRANCH ? w->block_at[last->target] : -1;
    }
    return 0;
}

static void flow_back(lives *w) {
    for (bool changed = true; changed;) {
        changed = false;
        for (int b = w->n_blocks - 1; b >= 0; b--) {
            code_block *p = &w->blocks[b];
            for (size_t i = 0; i < w->words; i++) {
                uint64_t out = 0;
                for (int s = 0; s < 2; s++) {
                    if (p->next[s] >= 0) out |= w->blocks[p->next[s]].in[i];
                }
                const uint64_t in = p->use[i] | (out & ~p->def[i]);
                changed |= in != p->in[i];
                p->in[i] = in;
                p->out[i] = out;
            }
        }
    }
}

int lives_open(lives *l, gpu_kernel *k, err *e) {
    *l = (lives){ .k = k, .n = k->n_pred + k->n32 + k->n64 };
    int rc = find_blocks(l, e);
    if (rc == 0) flow_back(l);
    return rc;
}

void lives_close(lives *l) {
    free(l->blocks);
    free(l->block_at);
    free(l->bits);
}
