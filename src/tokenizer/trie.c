/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trie built once from sorted keys. The children of a node lie side by side, so a node is 12 bytes and a walk mostly
 * reads one of them per byte. Node 0 is the root; its children are found through a table.
 */
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

void trie_deinit(trie *t) {
    free(t->nodes);
    *t = (trie){ 0 };
}

static int compare_keys(const void *pa, const void *pb) {
    const trie_key *a = pa, *b = pb;
    uint32_t        n = a->len < b->len ? a->len : b->len;
    int             c = memcmp(a->text, b->text, n);
    if (c) return c;
    if (a->len != b->len) return a->len < b->len ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value; /* the last of equal keys wins, see build */
}

typedef struct range {
    uint32_t node, lo, hi; /* keys[lo, hi) share the path to node */
} range;

int trie_build(trie *t, trie_key *keys, size_t n, err *e) {
    size_t total = 1;
    memset(t, 0, sizeof *t);
    if (n == 0) return 0;
    if (n > 1) qsort(keys, n, sizeof *keys, compare_keys);
    for (size_t i = 0; i < n; i++) total += keys[i].len;
    if (total > UINT32_MAX / 2) return err_set(e, ERR_LIMIT, "the vocabulary's texts are too large");
    /* Breadth first, one depth at a time: `level` holds the nodes of the current depth. */
    t->nodes = malloc(total * sizeof *t->nodes);
    range *level = malloc(n * sizeof *level), *below = malloc(n * sizeof *below);
    if (!t->nodes || !level || !below) goto nomem;
    t->nodes[0] = (trie_node){ .value = -1 };
    t->n_nodes = 1;
    size_t n_level = 1;
    level[0] = (range){ 0, 0, (uint32_t)n };
    for (uint32_t depth = 0; n_level; depth++) {
        size_t n_below = 0;
        for (size_t k = 0; k < n_level; k++) {
            trie_node *node = &t->nodes[level[k].node];
            uint32_t   i = level[k].lo;
            while (i < level[k].hi && keys[i].len == depth) node->value = keys[i++].value;
            node->first = t->n_nodes;
            node->n = 0;
            while (i < level[k].hi) {
                uint8_t  c = (uint8_t)keys[i].text[depth];
                uint32_t j = i;
                while (j < level[k].hi && (uint8_t)keys[j].text[depth] == c) j++;
                t->nodes[t->n_nodes] = (trie_node){ .value = -1, .label = c };
                if (level[k].node == 0) t->root_child[c] = t->n_nodes;
                below[n_below++] = (range){ t->n_nodes, i, j };
                t->n_nodes++;
                node->n++;
                i = j;
            }
        }
        range *swap = level;
        level = below;
        below = swap;
        n_level = n_below;
    }
    free(level);
    free(below);
    trie_node *small = realloc(t->nodes, t->n_nodes * sizeof *small);
    if (small) t->nodes = small;
    return 0;
nomem:
    free(level);
    free(below);
    trie_deinit(t);
    return err_set_nomem(e);
}
