/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the CPU backend: a tape lowered to work items, and everything a step touches, allocated once.
 *
 * An item is one kernel call pattern that all workers share. Most are an op of the tape; some are steps that an op
 * needs first: rotary tables, int8 copies of activations, the list of rows per expert, packed queries of latent
 * attention. Every worker walks the items in order and takes its share; items marked `barrier` begin when all workers
 * have finished everything before. How work is shared never changes a bit of the result.
 *
 * Where experts are streamed (store.h), the items from a mixture's first product to its last are walked several times, in
 * waves (wave.c): each time over the rows of those experts that have arrived.
 */
#ifndef BACKEND_CPU_CPU_H
#define BACKEND_CPU_CPU_H

#include "backend/cpu/store.h"
#include "backend/local.h"
#include "base/pool.h"
#include "kernels/kernels.h"

#include <stdatomic.h>

typedef enum cpu_item_kind {
    CPU_ITEM_OP,
    CPU_ITEM_ROPE_TABLE, /* cosines and sines of the batch's positions */
    CPU_ITEM_QUANT,      /* a buffer's rows as int8 blocks */
    CPU_ITEM_GROUP,      /* rows sorted by expert */
    CPU_ITEM_PACK,       /* latent attention: latent and rotated part side by side */
    CPU_ITEM_EXPAND,     /* the second half of what adapters add to a product; only for batches with adapters */
} cpu_item_kind;

typedef struct cpu_item {
    cpu_item_kind kind;
    bool          barrier;
    int           op;   /* index into the tape */
    int           aux;  /* ROPE_TABLE, rope ops: the table; QUANT and products: the int8 area, -1: f32 */
    nn_buf        buf;  /* QUANT, PACK: what is read */
    int           next; /* index of its counter where units are handed out one by one */
    int           also; /* the int8 area that the op fills with its own result, too; -1: none */
    int           slot; /* products and EXPAND: where the first half of adapters' products lies (adapt.c) */

    /* Of streamed experts. */
    int  mixture; /* GROUP and what runs in waves: which one (store_layout); -1: none */
    bool waved;   /* runs in waves, over their rows */
    bool once;    /* of these, in the first one only, over all rows: it makes what every wave reads */
    int  which;   /* EXPERTS: the product's number in its mixture */
} cpu_item;

enum { CPU_AREAS = 2, CPU_MAX_ROPES = 8, CPU_MAX_USED = 128 };
/* Pages that last a step are the chunks that attention reads, so that it reads them where they are. */
enum { STEP_PAGE_TOKENS = ATTN_CHUNK };

typedef struct cpu_rope {
    nn_rope rope;
    float  *table; /* [max_tokens][2 * n_freq] */
} cpu_rope;

typedef struct cpu_layer {
    kv_layout layout;
    size_t    page_off;
    kv_layout index, gathered; /* keys of an index, and pages of positions that were chosen (choose.c) */
    size_t    index_off;
    float    *fixed; /* [n_slots][fixed_floats] */
    size_t    fixed_floats;
} cpu_layer;

/* Time of one worker, in nanoseconds; for benchmarks. */
typedef struct cpu_times {
    _Alignas(64) int64_t kernels;
    int64_t by_kind[NN_OP_KINDS]; /* steps that an op needs first count as the op */
} cpu_times;

/* What a step with adapters needs; see adapt.c. */
typedef struct cpu_adapt {
    const nn_adapter_set *sets[NN_MAX_SETS + 1];
    bool                  on;                        /* the batch under way has rows with a set */
    int32_t              *order[NN_ROWS_LOGITS + 1]; /* rows of each kind by set, those without first */
    int32_t               start[NN_ROWS_LOGITS + 1][NN_MAX_SETS + 2];
    int32_t              *used; /* sets of the batch, rising */
    int                   n_used;
    int                   n_slots;  /* products between two barriers */
    int64_t               max_rows; /* of a product */
    int64_t               max_cols; /* inputs of a product */
    int64_t               max_acc;  /* outputs of a product that adds to what is there */
    int                   rank;     /* floats of a row of `shrunk` */
    float                *shrunk;   /* [n_slots][max_rows][rank] */
    float                *side;     /* [max_rows][max_acc]: products that are scaled before they are added */
    uint8_t              *scratch;  /* per worker: of the first half; rows of scaled inputs */
    size_t                scratch_bytes;
} cpu_adapt;

/* The groups that are computed now: all of them where nothing is streamed. */
typedef struct cpu_wave {
    int      first, end;     /* groups */
    int      asked;          /* groups in front of this one have a slot */
    int32_t *slots;          /* [n_groups]: in the store */
    int      held, held_end; /* groups whose slots are in use */
    bool     over;           /* there is no further wave */
} cpu_wave;

typedef struct cpu_exec {
    local_exec  base;
    kernels     k;
    pool       *pool;
    int         n_threads, n_workers; /* n_workers: of the step under way */
    bool        tiles;                /* products of F16 and BF16 weights by tiles: of a model that keeps nothing */
    cpu_item   *items;
    int         n_items, n_counters;
    atomic_int *counters;

    cpu_layer   *layers;
    uint8_t     *pages[NN_MAX_GROUPS]; /* mapped, not allocated */
    size_t       pages_bytes[NN_MAX_GROUPS];
    const void **page_ptrs[NN_MAX_GROUPS]; /* [max_seqs][max_pages] */

    /* Pages of layers that keep nothing: all of them use the same, one layer after another. */
    uint8_t     *step_pages;
    size_t       step_bytes;      /* mapped */
    size_t       step_page_bytes; /* 0: there is no such layer */
    const void **step_ptrs;       /* pages of the batch's sequences, one behind the other */
    int32_t     *step_first;      /* [max_seqs]: where a sequence's begin */

    act8    *areas[CPU_AREAS];
    cpu_rope ropes[CPU_MAX_ROPES];
    int      n_ropes;
    /* Rows by expert. Group g is the rows start[g] to start[g + 1] of the lists, all of expert[g]: row numbers of outputs
     * and of inputs. Where experts are streamed, those that are there come first. */
    int32_t    *start, *expert, *row_of, *in_of, *counts; /* counts: rows per expert, while they are sorted */
    int         n_groups;
    cpu_wave    wave;
    float      *packed; /* latent queries, then latent keys */
    float      *parts;  /* results of chunks where a context is shared among workers */
    size_t      parts_floats;
    atomic_int *folds;  /* [2 * n_threads]: units done of a sequence's key head; 0 between steps */
    float      *scores; /* [n_threads][score_floats]: of positions, where an indexer chooses */
    size_t      score_floats;
    atomic_int *scored;  /* [n_threads]: pieces done of a row; 0 between steps */
    uint8_t    *scratch; /* per worker */
    size_t      scratch_bytes;

    cpu_adapt adapt;

    store_layout layout; /* lies in base.mem */
    store       *store;  /* NULL: no experts are streamed */
    int          failed; /* the run under way: 0, or the code of error */
    err          error;

    int        op0, op1; /* of the run under way */
    bool       timed;
    cpu_times *times; /* [n_threads] */
} cpu_exec;

int  cpu_lower(cpu_exec *x, err *e);
void cpu_run_item(cpu_exec *x, const cpu_item *it, int worker);

/* Shares: [*lo, *hi) of n for one worker. */
static inline void cpu_share(int64_t n, int worker, int n_threads, int64_t *lo, int64_t *hi) {
    *lo = n * worker / n_threads;
    *hi = n * (worker + 1) / n_threads;
}

/* Rows of a buffer that an item goes over, and which the i-th of them is. */
static inline int64_t cpu_rows(const cpu_exec *x, const cpu_item *it, nn_buf b) {
    bool some = it->waved && !it->once;
    return some ? x->start[x->wave.end] - x->start[x->wave.first] : local_rows(&x->base, b);
}

static inline int64_t cpu_row(const cpu_exec *x, const cpu_item *it, int64_t i) {
    return it->waved && !it->once ? x->row_of[x->start[x->wave.first] + i] : i;
}

static inline void *cpu_scratch(const cpu_exec *x, int worker) {
    return x->scratch + (size_t)worker * x->scratch_bytes;
}

void cpu_linear(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker);
void cpu_head_linear(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker);
void cpu_experts(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker);
void cpu_group(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker);
void cpu_observe(cpu_exec *x, const nn_op *op, int worker); /* shows a product's input to who asked for it */
void cpu_quant(cpu_exec *x, const cpu_item *it, int worker);
/* n values of buffer b, from element `at` on, into an int8 area; both multiples of a block. */
void cpu_quant_piece(cpu_exec *x, int area, nn_buf b, int64_t at, int64_t n);
void cpu_attention(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker);
void cpu_kv_store(cpu_exec *x, const nn_op *op, int worker);
/* The pages of sequence s in a layer; its rows in an attention op. */
const void **cpu_pages_of(const cpu_exec *x, int layer, int s);
attn_args    cpu_attn_of(cpu_exec *x, const nn_op *op, int s);
/* Indexers (choose.c). pays: a sequence is longer than what is chosen of it; else attention over everything is the same. */
void   cpu_index_store(cpu_exec *x, const nn_op *op, int worker);
void   cpu_choose(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker);
bool   cpu_chosen_pays(const cpu_exec *x, const nn_op *op);
void   cpu_chosen_attention(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker);
size_t cpu_chosen_scratch(const cpu_exec *x, const nn_op *op);
void   cpu_pack(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker);
void   cpu_conv(cpu_exec *x, const nn_op *op, int worker);
void   cpu_delta(cpu_exec *x, const nn_op *op, int worker);
void   cpu_ssm(cpu_exec *x, const nn_op *op, int worker);
void   cpu_scan(cpu_exec *x, const nn_op *op, int worker);

int  cpu_adapt_set(nn_exec *base, int number, const nn_adapter_set *set, err *e);
int  cpu_adapt_begin(cpu_exec *x, err *e); /* sorts the rows of x->base.batch by set */
void cpu_adapt_free(cpu_exec *x);
/* Beside a product: the first half of what adapters add. */
void cpu_adapt_shrink(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker);
/* The product of rows whose inputs or outputs an adapter scales, and of all others; false: there are no such rows. */
bool cpu_adapt_product(cpu_exec *x, const cpu_item *it, const nn_op *op, const matmul_args *a, int64_t p0, int64_t p1,
                       int worker);
void cpu_adapt_expand(cpu_exec *x, const cpu_item *it, const nn_op *op, int worker);
void cpu_adapt_embed(cpu_exec *x, const nn_op *op, int64_t lo, int64_t hi); /* rows of the batch */

/* Streamed experts (wave.c). A worker's walk over items, as far as it has to know what was in front. */
typedef struct cpu_walk {
    int     worker;
    bool    halves; /* some product since the last barrier has the first half of an adapter's */
    bool    met;    /* the workers met right in front of the next item */
    int64_t spent;
} cpu_walk;
void cpu_walk_item(cpu_exec *x, cpu_walk *w, const cpu_item *it); /* where it is in the run, behind its barrier */
/* All waves of the mixture whose items begin with the i-th; returns the first item behind them, or n_items where a read
 * failed: then the walk is over. */
int  cpu_waves(cpu_exec *x, cpu_walk *w, int i);
void cpu_waves_end(cpu_exec *x); /* behind a run: gives back what the last wave used */

int cpu_move(nn_exec *base, const nn_move *moves, int n, nn_ticket *ticket, err *e);

#endif
