/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of a kernel as an array of instructions. A call is unfolded: the function's body stands where it was called,
 * its parameters and its result lie in the lanes' local memory. What an instruction is called decides what it becomes:
 * alu.c and convert.c have tables, the rest is here.
 */
#include "gpu/build.h"
#include "gpu/races.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- instructions ---- */

static bool has_part(word name, const char *part) { /* ".x" as a whole part of the name */
    const int n = (int)strlen(part);
    for (int i = 0; i + n <= name.n; i++) {
        if (memcmp(name.at + i, part, (size_t)n) == 0 && (i + n == name.n || name.at[i + n] == '.')) return true;
    }
    return false;
}

static bool begins(word name, const char *with) {
    const int n = (int)strlen(with);
    return name.n >= n && memcmp(name.at, with, (size_t)n) == 0;
}

static word last_part(word name) {
    int i = name.n;
    while (i > 0 && name.at[i - 1] != '.') i--;
    return (word){ name.at + i, name.n - i, 'w' };
}

/* A new instruction, and the guard that stood in front of it. */
static insn *add_insn(build *b) {
    if (b->n == b->cap) {
        const int cap = b->cap ? b->cap * 2 : 256;
        insn     *more = realloc(b->code, (size_t)cap * sizeof *more);
        if (!more) return NULL;
        b->code = more;
        b->cap = cap;
    }
    insn *i = &b->code[b->n++];
    memset(i, 0, sizeof *i);
    i->line = b->line;
    for (int k = 0; k < 5; k++) i->o[k].kind = SLOT_NONE;
    return i;
}

enum { RULE_SLOTS = 4096 };
static const insn_rule *rules_by_name[RULE_SLOTS];

static unsigned rule_hash(const char *at, int n) {
    unsigned h = 0;
    for (int i = 0; i < n; i++) h = h * 31 + (unsigned char)at[i];
    return h % RULE_SLOTS;
}

static const insn_rule *find_rule(word name) {
    static bool filled; /* under the lock of whoever opens modules */
    if (!filled) {
        const insn_rule *tables[] = { alu_rules, convert_rules };
        for (int t = 0; t < 2; t++) {
            for (const insn_rule *r = tables[t]; r->name; r++) {
                unsigned h = rule_hash(r->name, (int)strlen(r->name));
                while (rules_by_name[h]) h = (h + 1) % RULE_SLOTS;
                rules_by_name[h] = r;
            }
        }
        filled = true;
    }
    for (unsigned h = rule_hash(name.at, name.n); rules_by_name[h]; h = (h + 1) % RULE_SLOTS) {
        if (word_is(name, rules_by_name[h]->name)) return rules_by_name[h];
    }
    return NULL;
}

static slot_kind kind_of_letter(char c) { return c == 'p' ? SLOT_PRED : c == 'd' ? SLOT_64 : SLOT_32; }

static int by_rule(build *b, insn *i, const insn_rule *rule, word name, arg *a, int n) {
    const bool half = name.n > 2 && memcmp(name.at + name.n - 2, "16", 2) == 0;
    const int  wanted = (int)strlen(rule->shape);
    if (n != wanted) return ptx_fail(b, "another number of operands", name);
    i->fn = rule->fn;
    i->mode = rule->mode;
    i->flow = rule->flow;
    i->pure = !has_part(name, ".cc");
    i->copies = begins(name, "mov.") ? COPIES_SAME : word_is(name, "not.pred") ? COPIES_OPPOSITE : COPIES_NOTHING;
    for (int k = 0; k < n; k++) {
        int rc = ptx_operand_of(b, &a[k], kind_of_letter(rule->shape[k]), half, &i->o[k]);
        if (rc != 0) return rc;
        if (k) i->reads |= (uint16_t)(1u << k);
    }
    i->writes = 1;
    i->n = n;
    if (a[0].has_second) {
        i->o[n] = a[0].second;
        i->writes |= (uint16_t)(1u << n);
        i->n = n + 1;
    }
    return 0;
}

static int set_list(build *b, insn *i, int k, const arg *a) {
    if (a->kind == 'l') {
        i->list[k] = a->items;
        i->listed[k] = a->n_items;
        return 0;
    }
    operand *one = arena_alloc(&b->k->mem, sizeof *one);
    if (!one) return err_set_nomem(b->e);
    *one = a->reg;
    i->list[k] = one;
    i->listed[k] = 1;
    return 0;
}

/* o[k] and the offset of an address; the space is what the instruction says, a symbol's own otherwise. */
static int set_address(build *b, insn *i, int k, const arg *a) {
    if (a->kind != 'a') return ptx_fail(b, "an address was expected", b->r.now);
    i->reads |= (uint16_t)(1u << k);
    if (!a->name.n) {
        i->o[k] = a->reg;
        i->offset = a->offset;
        return 0;
    }
    uint8_t space = 0;
    int     rc = ptx_address_of(b, a->name, SLOT_64, a->offset, &i->o[k], &space);
    if (rc == 0 && (i->space == SPACE_PARAM || i->space == SPACE_GENERIC)) i->space = space;
    return rc;
}

static uint8_t space_of(word name) {
    return has_part(name, ".global") || has_part(name, ".const")         ? SPACE_GLOBAL
           : has_part(name, ".shared::cluster")                          ? SPACE_CLUSTER
           : has_part(name, ".shared") || has_part(name, ".shared::cta") ? SPACE_SHARED
           : has_part(name, ".local")                                    ? SPACE_LOCAL
           : has_part(name, ".param")                                    ? SPACE_PARAM
                                                                         : SPACE_GENERIC;
}

/* One, two or four registers, as wide as what is loaded or stored where that is possible. */
static bool alike(const insn *i) {
    const slot_kind kind = i->bytes == 8 ? SLOT_64 : SLOT_32;
    const int       n = i->listed[0];
    for (int k = 0; k < n; k++) {
        if (i->list[0][k].kind != kind) return false;
    }
    return n == 1 || n == 2 || (n == 4 && i->bytes < 8);
}

static int is_load_store(build *b, insn *i, word name, arg *a, int n) {
    const bool load = begins(name, "ld");
    const word type = last_part(name);
    const arg *data = load ? &a[0] : &a[1], *at = load ? &a[1] : &a[0];
    if (n != 2) return ptx_fail(b, "another number of operands", name);
    i->fn = load ? do_load : do_store;
    i->space = space_of(name);
    i->bytes = (uint16_t)type_bytes(type.at, type.n);
    if (!i->bytes) return ptx_fail(b, "a type", name);
    int rc;
    if (data->kind == 'i' || data->kind == 's') {
        arg fixed = *data;
        rc = ptx_operand_of(b, data, i->bytes == 8 ? SLOT_64 : SLOT_32, false, &fixed.reg);
        if (rc == 0) rc = set_list(b, i, 0, &fixed);
    } else {
        rc = set_list(b, i, 0, data);
    }
    if (rc == 0) rc = set_address(b, i, 1, at);
    const int into = data->kind == 'l' ? data->item_bytes : data->bytes;
    i->alike = alike(i);
    if (load && type.at[0] == 's') i->mode = into == 2 ? EXTEND_16 : EXTEND_32;
    if (load)
        i->writes |= 1u << 5;
    else
        i->reads |= 1u << 5;
    return rc;
}

static int atom_kind(word name) {
    static const char *const names[] = {
        ".add", ".min", ".max", ".inc", ".dec", ".exch", ".cas", ".and", ".or", ".xor"
    };
    const word type = last_part(name);
    for (int k = 0; k < 10; k++) {
        if (has_part(name, names[k]))
            return k | (type.at[0] == 's' ? ATOM_SIGNED : 0) | (type.at[0] == 'f' ? ATOM_FLOAT : 0);
    }
    return -1;
}

static int is_atom(build *b, insn *i, word name, arg *a, int n) {
    const word      type = last_part(name);
    const int       with = begins(name, "atom") ? 1 : 0, kind = atom_kind(name);
    const slot_kind slot = type_kind(type.at, type.n);
    if (kind < 0 || n < 2 + with) return ptx_fail(b, "an atomic", name);
    i->fn = do_atom;
    i->mode = (uint8_t)kind;
    i->space = space_of(name);
    i->bytes = (uint16_t)type_bytes(type.at, type.n);
    int rc = set_address(b, i, 1, &a[with]);
    if (rc == 0 && with && a[0].kind == 'r') {
        i->writes = 1;
        rc = ptx_operand_of(b, &a[0], slot, false, &i->o[0]);
    }
    for (int k = 2; k < n - with + 1 && rc == 0; k++) {
        rc = ptx_operand_of(b, &a[with + k - 1], slot, false, &i->o[k]);
        i->reads |= (uint16_t)(1u << k);
    }
    return rc;
}

static int special_of(word name) {
    static const struct {
        const char *name;
        int         which;
    } known[] = { { "%tid.x", SPECIAL_TID },
                  { "%tid.y", SPECIAL_TID + 1 },
                  { "%tid.z", SPECIAL_TID + 2 },
                  { "%ntid.x", SPECIAL_NTID },
                  { "%ntid.y", SPECIAL_NTID + 1 },
                  { "%ntid.z", SPECIAL_NTID + 2 },
                  { "%ctaid.x", SPECIAL_CTAID },
                  { "%ctaid.y", SPECIAL_CTAID + 1 },
                  { "%ctaid.z", SPECIAL_CTAID + 2 },
                  { "%nctaid.x", SPECIAL_NCTAID },
                  { "%nctaid.y", SPECIAL_NCTAID + 1 },
                  { "%nctaid.z", SPECIAL_NCTAID + 2 },
                  { "%laneid", SPECIAL_LANE },
                  { "%warpid", SPECIAL_WARP },
                  { "%cluster_ctarank", SPECIAL_RANK },
                  { "%cluster_nctarank", SPECIAL_CLUSTER },
                  { "%clusterid.x", SPECIAL_CLUSTER_ID },
                  { "%clock", SPECIAL_CLOCK },
                  { "%clock64", SPECIAL_CLOCK },
                  { "%globaltimer", SPECIAL_CLOCK },
                  { "%lanemask_lt", SPECIAL_LT },
                  { "%lanemask_le", SPECIAL_LE },
                  { "%lanemask_gt", SPECIAL_GT },
                  { "%lanemask_ge", SPECIAL_GE },
                  { "%lanemask_eq", SPECIAL_EQ },
                  { "%smid", SPECIAL_SM },
                  { "%nwarpid", SPECIAL_NWARP } };
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        if (word_is(name, known[k].name)) return known[k].which;
    }
    return -1;
}

/* mov with braces, special registers and addresses; 1: an ordinary one. */
static int is_mov(build *b, insn *i, arg *a, int n) {
    if (n != 2) return 1;
    if (a[0].kind == 'l') {
        i->fn = do_unpack;
        i->pure = true;
        i->o[1] = a[1].reg;
        i->reads = 2;
        i->writes = 1u << 5;
        return set_list(b, i, 0, &a[0]);
    }
    if (a[1].kind == 'l') {
        i->fn = do_pack;
        i->pure = true;
        i->o[0] = a[0].reg;
        i->writes = 1;
        i->reads = 1u << 5;
        return set_list(b, i, 0, &a[1]);
    }
    if (a[1].kind == 'x') {
        const int which = special_of(a[1].name);
        if (which < 0) return ptx_fail(b, "a special register", a[1].name);
        i->fn = do_special;
        i->pure = which != SPECIAL_CLOCK;
        i->mode = (uint8_t)which;
        i->o[0] = a[0].reg;
        i->writes = 1;
        return 0;
    }
    return 1;
}

/* o[k] from argument k, 32 bits, the first one written where `writes`. */
static int plain(build *b, insn *i, const arg *a, int n, bool writes, slot_kind first) {
    for (int k = 0; k < n; k++) {
        int rc = ptx_operand_of(b, &a[k], k == 0 ? first : SLOT_32, false, &i->o[k]);
        if (rc != 0) return rc;
        if (k == 0 && writes)
            i->writes |= 1;
        else
            i->reads |= (uint16_t)(1u << k);
    }
    i->n = n;
    return 0;
}

static int is_warp(build *b, insn *i, word name, arg *a, int n) {
    i->flow = FLOW_MEET;
    i->target = (uint32_t)n - 1;
    if (begins(name, "shfl.sync")) {
        i->fn = do_shfl;
        i->mode = has_part(name, ".idx") ? 0 : has_part(name, ".up") ? 1 : has_part(name, ".down") ? 2 : 3;
        int rc = plain(b, i, a, n, true, SLOT_32);
        if (rc == 0 && a[0].has_second) {
            arg p = { .kind = 'r', .reg = a[0].second };
            rc = set_list(b, i, 0, &p);
            i->writes |= 1u << 5;
        }
        return rc;
    }
    if (begins(name, "vote.sync")) {
        i->fn = do_vote;
        i->mode = has_part(name, ".ballot") ? 0 : has_part(name, ".all") ? 1 : 2;
        int rc = ptx_operand_of(b, &a[0], i->mode ? SLOT_PRED : SLOT_32, false, &i->o[0]);
        if (rc == 0) rc = ptx_operand_of(b, &a[1], SLOT_PRED, false, &i->o[1]);
        if (rc == 0) rc = ptx_operand_of(b, &a[2], SLOT_32, false, &i->o[2]);
        i->writes = 1;
        i->reads = 6;
        return rc;
    }
    if (begins(name, "redux.sync")) {
        const int kind = atom_kind(name);
        if (kind < 0) return ptx_fail(b, "an instruction", name);
        i->fn = do_redux;
        i->mode = (uint8_t)kind;
        return plain(b, i, a, n, true, SLOT_32);
    }
    i->fn = do_nothing; /* bar.warp.sync */
    return plain(b, i, a, n, false, SLOT_32);
}

static int is_bar(build *b, insn *i, word name, arg *a, int n) {
    int rc = 0;
    i->flow = FLOW_BARRIER;
    if (begins(name, "barrier.cluster")) {
        i->mode = has_part(name, ".arrive") ? BAR_CLUSTER_ARRIVE : BAR_CLUSTER_WAIT;
        return 0;
    }
    const bool red = has_part(name, ".red");
    i->mode = !red                     ? has_part(name, ".arrive") ? BAR_ARRIVE : BAR_SYNC
              : has_part(name, ".or")  ? BAR_OR
              : has_part(name, ".and") ? BAR_AND
                                       : BAR_POPC;
    int at = 0;
    if (red) {
        rc = ptx_operand_of(b, &a[at++], i->mode == BAR_POPC ? SLOT_32 : SLOT_PRED, false, &i->o[0]);
        i->writes = 1;
        if (rc == 0) rc = ptx_operand_of(b, &a[n - 1], SLOT_PRED, false, &i->o[3]);
        i->reads |= 8;
        n--;
    }
    if (rc == 0) rc = ptx_operand_of(b, &a[at++], SLOT_32, false, &i->o[1]);
    i->reads |= 2;
    if (rc == 0 && at < n) {
        rc = ptx_operand_of(b, &a[at], SLOT_32, false, &i->o[2]);
        i->reads |= 4;
        i->n = 3;
    }
    return rc;
}

static int is_mbarrier(build *b, insn *i, word name, arg *a, int n) {
    i->space = space_of(name);
    if (has_part(name, ".init")) {
        i->fn = do_mbar_init;
        int rc = set_address(b, i, 1, &a[0]);
        if (rc == 0) rc = ptx_operand_of(b, &a[1], SLOT_32, false, &i->o[2]);
        i->reads |= 4;
        return rc;
    }
    if (has_part(name, ".arrive")) {
        i->fn = do_mbar_arrive;
        i->mode = has_part(name, ".expect_tx");
        /* The state that comes back is not used by our kernels. */
        int rc = set_address(b, i, 1, &a[1]);
        if (rc == 0 && n > 2) rc = ptx_operand_of(b, &a[2], SLOT_32, false, &i->o[2]);
        if (n > 2) i->reads |= 4;
        i->n = n;
        return rc;
    }
    if (has_part(name, ".try_wait") || has_part(name, ".test_wait")) {
        i->fn = do_mbar_wait;
        if (!has_part(name, ".parity")) return ptx_fail(b, "an instruction", name);
        int rc = ptx_operand_of(b, &a[0], SLOT_PRED, false, &i->o[0]);
        if (rc == 0) rc = set_address(b, i, 1, &a[1]);
        if (rc == 0) rc = ptx_operand_of(b, &a[2], SLOT_32, false, &i->o[2]);
        i->writes = 1;
        i->reads |= 4;
        return rc;
    }
    if (has_part(name, ".inval")) {
        i->fn = do_nothing;
        return 0;
    }
    return ptx_fail(b, "an instruction", name);
}

/* An address without an offset as operand k. */
static int bare_address(build *b, insn *i, int k, const arg *a) {
    if (a->kind != 'a' || (a->offset && a->name.n == 0))
        return ptx_fail(b, "an address without an offset was expected", b->r.now);
    return set_address(b, i, k, a);
}

static int is_copy(build *b, insn *i, word name, arg *a, int n) {
    int rc = 0;
    if (begins(name, "cp.async.commit_group")) {
        i->fn = do_copy_commit;
    } else if (begins(name, "cp.async.wait_group") || begins(name, "cp.async.wait_all")) {
        i->fn = do_copy_wait;
        i->offset = n ? (int64_t)a[0].bits : 0;
        i->mode = begins(name, "cp.async.wait_all");
    } else if (begins(name, "cp.async.mbarrier.arrive")) {
        i->fn = do_copy_arrive;
        i->mode = has_part(name, ".noinc");
        i->space = SPACE_SHARED;
        rc = set_address(b, i, 1, &a[0]);
    } else if (begins(name, "cp.async.bulk.prefetch")) {
        i->fn = do_bulk_prefetch;
        i->space = SPACE_GLOBAL;
        rc = bare_address(b, i, 1, &a[0]);
        if (rc == 0) rc = ptx_operand_of(b, &a[1], SLOT_32, false, &i->o[2]);
        i->reads |= 4;
    } else if (begins(name, "cp.async.bulk.shared::cluster.global")) {
        i->fn = do_bulk_copy;
        rc = bare_address(b, i, 0, &a[0]);
        if (rc == 0) rc = bare_address(b, i, 1, &a[1]);
        if (rc == 0) rc = ptx_operand_of(b, &a[2], SLOT_32, false, &i->o[2]);
        if (rc == 0) rc = bare_address(b, i, 3, &a[3]);
        if (rc == 0 && n > 4) rc = ptx_operand_of(b, &a[4], SLOT_32, false, &i->o[4]);
        i->reads |= n > 4 ? 31 : 15;
        i->n = n;
    } else if (begins(name, "cp.async.ca") || begins(name, "cp.async.cg")) {
        i->fn = do_copy_async;
        i->bytes = (uint16_t)a[2].bits;
        rc = bare_address(b, i, 0, &a[0]);
        if (rc == 0) rc = bare_address(b, i, 1, &a[1]);
        if (rc == 0 && n > 3) {
            rc = ptx_operand_of(b, &a[3], SLOT_32, false, &i->o[2]);
            i->reads |= 4;
        }
        i->n = n;
    } else {
        return ptx_fail(b, "an instruction", name);
    }
    return rc;
}

static int is_matrix(build *b, insn *i, word name, arg *a, int n) {
    int rc = 0;
    i->flow = FLOW_MEET;
    i->target = MEETS_ALL;
    if (begins(name, "ldmatrix.sync.aligned.m8n8")) {
        i->fn = do_ldmatrix;
        i->mode = has_part(name, ".trans");
        i->space = SPACE_SHARED;
        i->writes = 1u << 5;
        rc = set_list(b, i, 0, &a[0]);
        return rc ? rc : set_address(b, i, 1, &a[1]);
    }
    const bool bf16 = has_part(name, ".bf16");
    if (begins(name, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32") ||
        begins(name, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")) {
        i->fn = do_mma;
        i->mode = bf16;
        for (int k = 0; k < 4 && rc == 0; k++) rc = set_list(b, i, k, &a[k]);
        i->writes = 1u << 5;
        i->reads = 7u << 6;
        return rc;
    }
    if (begins(name, "wgmma.mma_async.sync.aligned.m64n")) {
        const bool held = a[1].kind == 'l';
        i->fn = do_wgmma;
        i->bytes = (uint16_t)atoi(name.at + strlen("wgmma.mma_async.sync.aligned.m64n"));
        /* Behind the predicate: signs of A and B, then which of them are turned. */
        if (n != (held ? 7 : 8) || a[4].bits != 1 || a[5].bits != 1) return ptx_fail(b, "an instruction", name);
        if (!held && a[6].bits) return ptx_fail(b, "a turned A", name);
        const bool turned = a[n - 1].bits != 0;
        i->mode = (uint8_t)((bf16 ? WGMMA_BF16 : 0) | (held ? WGMMA_HELD : 0) | (turned ? WGMMA_TURNED : 0));
        rc = set_list(b, i, 0, &a[0]);
        i->writes = 1u << 5;
        i->reads = (1u << 5) | 12;
        if (held) {
            if (rc == 0) rc = set_list(b, i, 1, &a[1]);
            i->reads |= 1u << 6;
        } else {
            if (rc == 0) rc = ptx_operand_of(b, &a[1], SLOT_64, false, &i->o[1]);
            i->reads |= 2;
        }
        if (rc == 0) rc = ptx_operand_of(b, &a[2], SLOT_64, false, &i->o[2]);
        if (rc == 0) rc = ptx_operand_of(b, &a[3], SLOT_PRED, false, &i->o[3]);
        return rc;
    }
    return ptx_fail(b, "an instruction", name);
}

static int add_fixup(build *b, word label) {
    fixup *f = arena_alloc(&b->k->mem, sizeof *f);
    if (!f) return err_set_nomem(b->e);
    *f = (fixup){ b->fixups, b->n - 1, b->scope, label };
    b->fixups = f;
    return 0;
}

/* What has no table: memory, meetings, control. */
static int by_name(build *b, insn *i, word name, arg *a, int n) {
    i->fn = do_nothing;
    if (begins(name, "ld.") || begins(name, "st.")) return is_load_store(b, i, name, a, n);
    if (begins(name, "atom.") || begins(name, "red.")) return is_atom(b, i, name, a, n);
    if (begins(name, "cvta")) {
        i->fn = do_cvta;
        i->mode = has_part(name, ".to");
        i->space = space_of(name);
        i->pure = true;
        i->copies = i->space == SPACE_GLOBAL ? COPIES_SAME : COPIES_NOTHING;
        i->writes = 1;
        i->reads = 2;
        int rc = ptx_operand_of(b, &a[0], SLOT_64, false, &i->o[0]);
        if (a[1].kind == 's') {
            uint8_t space;
            return rc ? rc : ptx_address_of(b, a[1].name, SLOT_64, 0, &i->o[1], &space);
        }
        return rc ? rc : ptx_operand_of(b, &a[1], SLOT_64, false, &i->o[1]);
    }
    if (begins(name, "mapa.")) {
        i->fn = do_mapa;
        return plain(b, i, a, n, true, SLOT_32);
    }
    if (begins(name, "shfl.sync") || begins(name, "vote.sync") || begins(name, "redux.sync") ||
        begins(name, "bar.warp.sync"))
        return is_warp(b, i, name, a, n);
    if (begins(name, "bar.") || begins(name, "barrier.")) return is_bar(b, i, name, a, n);
    /* The four warps of a warpgroup begin their products together, and end them together: programs count on one of them for all. */
    if (begins(name, "griddepcontrol.wait") || begins(name, "wgmma.fence") || begins(name, "wgmma.wait_group")) {
        i->flow = FLOW_BARRIER;
        i->mode = begins(name, "wgmma") ? BAR_WARPGROUP : BAR_GRID;
        i->offset = n ? (int64_t)a[0].bits : 0; /* groups that may be under way */
        return 0;
    }
    if (begins(name, "griddepcontrol.launch_dependents")) {
        i->fn = do_let_begin;
        return 0;
    }
    if (begins(name, "mbarrier.")) return is_mbarrier(b, i, name, a, n);
    if (begins(name, "cp.async")) return is_copy(b, i, name, a, n);
    if (begins(name, "ldmatrix") || begins(name, "mma.") || begins(name, "wgmma.mma_async"))
        return is_matrix(b, i, name, a, n);
    if (begins(name, "bra")) {
        i->flow = FLOW_BRANCH;
        return add_fixup(b, a[0].name);
    }
    if (begins(name, "exit") || begins(name, "ret")) {
        if (begins(name, "ret") && b->leave.n) {
            i->flow = FLOW_BRANCH;
            return add_fixup(b, b->leave);
        }
        i->flow = FLOW_EXIT;
        return 0;
    }
    static const char *const nothing[] = { "fence.",           "membar.",  "setmaxnreg.", "wgmma.commit_group",
                                           "wgmma.wait_group", "prefetch", "nanosleep",   "discard" };
    for (size_t k = 0; k < sizeof nothing / sizeof *nothing; k++) {
        if (begins(name, nothing[k])) return 0;
    }
    return ptx_fail(b, "an instruction", name);
}

static int read_body(build *b, const module_fn *f);

/* "call.uni (result), function, (parameters);" behind the word call. */
static int read_call(build *b) {
    reader *r = &b->r;
    word    result = { 0 }, args[64];
    int     n = 0;
    if (reader_take(r, "(")) {
        result = r->now;
        reader_next(r);
        reader_next(r); /* ) */
        reader_take(r, ",");
    }
    const module_fn *f = module_fn_find(b->m, r->now.at, r->now.n);
    if (!f) return ptx_fail(b, "a function that is not in the module", r->now);
    reader_next(r);
    if (reader_take(r, ",") && reader_take(r, "(")) {
        while (!reader_take(r, ")") && r->now.kind) {
            args[n++] = r->now;
            reader_next(r);
            reader_take(r, ",");
        }
    }
    if (!reader_take(r, ";") || n != f->n_params || b->depth == 16) return ptx_fail(b, "a call", r->now);
    /* The names of the function's parameters stand for the places that the caller filled. */
    scope *here = b->scope, *outermost = here;
    while (outermost->up) outermost = outermost->up;
    scope *inner = arena_calloc(&b->k->mem, 1, sizeof *inner);
    if (!inner) return err_set_nomem(b->e);
    inner->up = outermost; /* the kernel's variables, none of its registers */
    sym *places[65];
    for (int k = 0; k < n; k++) places[k] = ptx_find_in(here, args[k]);
    places[64] = f->has_result ? ptx_find_in(here, result) : NULL;
    b->scope = inner;
    for (int k = 0; k < n; k++) {
        sym *y = places[k] ? ptx_add_name(b, f->params[k].name, SYM_LOCAL) : NULL;
        if (!y) return ptx_fail(b, "a parameter", args[k]);
        y->at = places[k]->at;
    }
    if (f->has_result) {
        sym *y = places[64] ? ptx_add_name(b, f->result.name, SYM_LOCAL) : NULL;
        if (!y) return ptx_fail(b, "a result", result);
        y->at = places[64]->at;
    }
    const reader kept = *r;
    const word   leave = b->leave;
    b->leave = (word){ "$leave", 6, 'w' };
    b->depth++;
    reader_open(r, f->body, f->end, f->line);
    int rc = read_body(b, f);
    if (rc == 0) {
        b->scope = inner;
        sym *end = ptx_add_name(b, b->leave, SYM_LABEL);
        if (!end)
            rc = err_set_nomem(b->e);
        else
            end->at = (uint64_t)b->n;
    }
    b->depth--;
    b->leave = leave;
    b->scope = here;
    *r = kept;
    return rc;
}

/* "cvt.s64.s32 %rd1, %rd2" takes the lower half of a wider register: that goes through a register of its own. */
static int narrow_source(build *b, const insn_rule *rule, arg *a) {
    if (a[1].kind != 'r' || a[1].reg.kind != SLOT_64 || rule->shape[1] != 'w') return 0;
    const insn_rule *low = find_rule((word){ "cvt.u32.u64", 11, 'w' });
    insn            *i = low ? add_insn(b) : NULL;
    if (!i) return err_set_nomem(b->e);
    arg half[2] = { { .kind = 'r', .reg = { .at = b->k->n32++, .kind = SLOT_32 } }, a[1] };
    i->name = "cvt.u32.u64";
    a[1] = half[0];
    return by_rule(b, i, low, (word){ i->name, 11, 'w' }, half, 2);
}

static int read_insn(build *b) {
    reader *r = &b->r;
    operand guard = { 0 };
    bool    guarded = false;
    b->line = r->line;
    if (reader_take(r, "@")) {
        arg a;
        int rc = ptx_read_arg(b, &a);
        if (rc != 0) return rc;
        if (a.kind != 'r' || a.reg.kind != SLOT_PRED) return ptx_fail(b, "a predicate was expected", a.name);
        guard = a.reg;
        guarded = true;
    }
    const word name = r->now;
    if (name.kind != 'w') return ptx_fail(b, "an instruction was expected", name);
    reader_next(r);
    if (begins(name, "call")) return guarded ? ptx_fail(b, "a guarded call", name) : read_call(b);
    arg a[10];
    int n = 0;
    while (!reader_take(r, ";")) {
        if (n == 10 || !r->now.kind) return ptx_fail(b, "operands", name);
        int rc = ptx_read_arg(b, &a[n++]);
        if (rc != 0) return rc;
        if (!reader_take(r, ",") && !word_is(r->now, ";")) return ptx_fail(b, "';' was expected", r->now);
    }
    const insn_rule *rule = find_rule(name);
    int              rc = rule && begins(name, "cvt.") ? narrow_source(b, rule, a) : 0;
    if (rc != 0) return rc;
    insn *i = add_insn(b);
    if (!i) return err_set_nomem(b->e);
    i->guarded = guarded;
    i->guard = guard;
    i->name = arena_strndup(&b->k->mem, name.at, (size_t)name.n);
    if (!i->name) return err_set_nomem(b->e);
    if (begins(name, "mov.")) {
        rc = is_mov(b, i, a, n);
        if (rc <= 0) return rc;
    }
    return rule ? by_rule(b, i, rule, name, a, n) : by_name(b, i, name, a, n);
}

static int read_body(build *b, const module_fn *f) {
    reader *r = &b->r;
    scope  *outer = b->scope;
    int     rc = ptx_open_scope(b);
    (void)f;
    while (rc == 0 && r->now.kind) {
        if (reader_take(r, "{")) {
            rc = ptx_open_scope(b);
        } else if (reader_take(r, "}")) {
            b->scope = b->scope->up;
        } else if (reader_take(r, ".reg")) {
            rc = ptx_read_regs(b);
        } else if (reader_take(r, ".shared")) {
            rc = ptx_declare(b, SYM_SHARED);
        } else if (reader_take(r, ".local") || reader_take(r, ".param")) {
            rc = ptx_declare(b, SYM_LOCAL);
        } else if (reader_take(r, ".pragma")) {
            reader_next(r);
        } else if (reader_take(r, ";")) {
        } else if (r->now.kind == 'w' && r->at < r->end && *r->at == ':') {
            sym *y = ptx_add_name(b, r->now, SYM_LABEL);
            if (!y) return err_set_nomem(b->e);
            y->at = (uint64_t)b->n;
            reader_next(r);
            reader_next(r);
        } else {
            rc = read_insn(b);
        }
    }
    b->scope = outer;
    return rc;
}

static int resolve(build *b) {
    for (fixup *f = b->fixups; f; f = f->next) {
        const sym *y = ptx_find_in(f->from, f->label);
        if (!y || y->kind != SYM_LABEL) return ptx_fail(b, "an unknown label", f->label);
        b->code[f->insn].target = (uint32_t)y->at;
    }
    return 0;
}

static int read_kernel(build *b, const module_fn *f) {
    gpu_kernel *k = b->k;
    size_t      at = 0;
    int         rc = ptx_open_scope(b);
    if (rc != 0) return rc;
    if (f->n_params > 64) return err_set(b->e, ERR_LIMIT, "%s: too many parameters", f->name);
    for (int p = 0; p < f->n_params; p++) {
        at = ptx_round_up(at, f->params[p].align);
        sym *y = ptx_add_name(b, f->params[p].name, SYM_PARAM);
        if (!y) return err_set_nomem(b->e);
        y->at = at;
        k->shape.param_at[p] = at;
        k->shape.param_bytes[p] = f->params[p].element * f->params[p].count;
        at += k->shape.param_bytes[p];
    }
    k->shape.n_params = f->n_params;
    k->shape.params_bytes = at;
    k->shape.threads_max = f->threads_max;
    reader_open(&b->r, f->body, f->end, f->line);
    rc = read_body(b, f);
    if (rc != 0) return rc;
    insn *last = add_insn(b); /* a label may stand behind the last instruction */
    if (!last) return err_set_nomem(b->e);
    last->fn = do_nothing;
    last->flow = FLOW_EXIT;
    last->name = "exit";
    rc = resolve(b);
    if (rc != 0) return rc;
    ptx_place_dynamic(b);
    k->shape.static_smem = k->static_smem;
    k->code = b->code;
    k->n_code = b->n;
    b->code = NULL;
    races_wrap(k);
    rc = kernel_shorten(k, b->e);
    return rc ? rc : slots_assign(k, b->e);
}

int kernel_read(gpu_kernel **out, gpu_module *m, const module_fn *f, err *e) {
    gpu_kernel *k = calloc(1, sizeof *k);
    if (!k) return err_set_nomem(e);
    arena_init(&k->mem, 0);
    k->name = f->name;
    build b = { .m = m, .k = k, .e = e };
    int   rc = read_kernel(&b, f);
    free(b.code);
    free(b.dynamic);
    if (rc != 0) {
        kernel_free(k);
        return rc;
    }
    *out = k;
    return 0;
}

void kernel_free(gpu_kernel *k) {
    if (!k) return;
    free(k->code);
    free(k->c_pred);
    free(k->c32);
    free(k->c64);
    arena_deinit(&k->mem);
    free(k);
}
