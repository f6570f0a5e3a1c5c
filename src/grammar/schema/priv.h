/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema compiler's insides.
 *
 * A schema is read as a set of literals: "the instance is valid against this subschema" or "is not". A node is such a
 * set, meant as a conjunction, and is found again by its literals, so recursion through $ref ends at a node that is
 * already known. Expanding a node gives worlds: flat conjunctions without combinators, whose union is the node's
 * language. anyOf, oneOf, if and dependencies multiply worlds; contradictions remove them. A world is compiled type by
 * type: scalars become one regular expression, arrays and objects rules whose members are nodes again.
 *
 * Everything lives in one arena with a byte limit. Lists are persistent (only ever extended at the head), so copying a
 * world is copying a struct. The first error is kept in the context and stops everything.
 */
#ifndef GRAMMAR_SCHEMA_PRIV_H
#define GRAMMAR_SCHEMA_PRIV_H

#include "base/arena.h"
#include "base/json.h"
#include "base/map.h"
#include "grammar/ir.h"
#include "grammar/schema/schema.h"

enum {
    SCHEMA_NULL = 1,
    SCHEMA_BOOL = 2,
    SCHEMA_INT = 4,  /* numbers with an integral value */
    SCHEMA_FRAC = 8, /* the other numbers */
    SCHEMA_STRING = 16,
    SCHEMA_ARRAY = 32,
    SCHEMA_OBJECT = 64,
    SCHEMA_NUMBER = SCHEMA_INT | SCHEMA_FRAC,
    SCHEMA_ANY = 127,
};

enum {
    SCHEMA_MAX_NODES = 60000,      /* distinct conjunctions */
    SCHEMA_MAX_WORLDS = 512,       /* of one node */
    SCHEMA_MAX_ALL_WORLDS = 20000, /* of all nodes, with the pruned ones */
    SCHEMA_MAX_STEPS = 300000,     /* literals applied */
    SCHEMA_MAX_CHOICES = 200,      /* nested choices of one world: bounds recursion */
    SCHEMA_MAX_CLASSES = 64,       /* classes of property names made by patternProperties */
    SCHEMA_MAX_SET = 64,           /* things of which the written ones are remembered */
    SCHEMA_MAX_SET_MOVES = 16384,  /* of one array or object: ways from a set to the next one */
    SCHEMA_MAX_SPAN = 1024,        /* integers looked at between two bounds */
    SCHEMA_MAX_MEMORY = 128 << 20,
};

typedef enum schema_kind {
    SCHEMA_IS,     /* valid against the subschema */
    SCHEMA_IS_NOT, /* not valid against it */
    SCHEMA_BREAKS, /* not valid because of one keyword: `member` of the subschema, its part `part` */
} schema_kind;

typedef enum schema_keyword {
    KW_NONE,
    KW_REF,
    KW_DYNAMIC_REF,
    KW_TYPE,
    KW_ENUM,
    KW_CONST,
    KW_NOT,
    KW_ALL_OF,
    KW_ANY_OF,
    KW_ONE_OF,
    KW_IF,
    KW_DEPENDENCIES, /* also dependentRequired and dependentSchemas */
    KW_MIN_LENGTH,
    KW_MAX_LENGTH,
    KW_PATTERN,
    KW_FORMAT,
    KW_MINIMUM,
    KW_MAXIMUM,
    KW_EXCLUSIVE_MINIMUM,
    KW_EXCLUSIVE_MAXIMUM,
    KW_MULTIPLE_OF,
    KW_ITEMS, /* also prefixItems and additionalItems */
    KW_CONTAINS,
    KW_MIN_CONTAINS,
    KW_MAX_CONTAINS,
    KW_MIN_ITEMS,
    KW_MAX_ITEMS,
    KW_UNIQUE_ITEMS,
    KW_UNEVALUATED_ITEMS,
    KW_PROPERTIES,
    KW_PATTERN_PROPERTIES,
    KW_ADDITIONAL_PROPERTIES,
    KW_UNEVALUATED_PROPERTIES,
    KW_PROPERTY_NAMES,
    KW_REQUIRED,
    KW_MIN_PROPERTIES,
    KW_MAX_PROPERTIES,
} schema_keyword;

typedef struct schema_lit {
    const json_value *s;
    uint32_t          base; /* index of the resource whose $id is the base of references in s */
    uint32_t          kind, member, part;
} schema_lit;

typedef struct schema_lits {
    schema_lit                l;
    const struct schema_lits *next;
} schema_lits;

typedef struct schema_choice { /* one of alts[0..n) holds; each is a conjunction */
    const schema_lits         **alts;
    size_t                      n;
    const struct schema_choice *next;
} schema_choice;

/* A decimal number as text: sign, digits before the point without leading zeros ("0" for zero), behind it without
 * trailing ones. */
#define SCHEMA_DEC_MAX 64
typedef struct schema_dec {
    bool    negative;
    uint8_t n_whole, n_frac;
    char    whole[SCHEMA_DEC_MAX], frac[SCHEMA_DEC_MAX];
} schema_dec;

typedef struct schema_bound {
    const schema_dec *at; /* NULL: no bound */
    bool              exclusive;
} schema_bound;

typedef struct schema_multiple {
    const schema_dec             *of;
    bool                          negate;
    const struct schema_multiple *next;
} schema_multiple;

typedef struct schema_texts {
    ir_rx                      rx;
    const struct schema_texts *next;
} schema_texts;

typedef struct schema_values {
    const json_value           *value;
    const struct schema_values *next;
} schema_values;

typedef struct schema_items {          /* items, prefixItems and additionalItems of one subschema */
    const json_value          *prefix; /* a JSON array, or NULL */
    bool                       has_rest;
    schema_lit                 rest;
    uint32_t                   base;
    const struct schema_items *next;
} schema_items;

typedef struct schema_item_at {
    size_t                       index;
    schema_lit                   l;
    const struct schema_item_at *next;
} schema_item_at;

typedef struct schema_layer { /* properties, patternProperties, additionalProperties of one subschema */
    const json_value          *props, *patterns, *additional;
    bool                       open; /* says that any further name may come */
    uint32_t                   base;
    const struct schema_layer *next;
} schema_layer;

typedef struct schema_named {
    view                       name;
    schema_lit                 l;
    const struct schema_named *next;
} schema_named;

typedef struct schema_some { /* the object has a member whose name matches and whose value fulfils l */
    ir_rx                     names;
    schema_lit                l;
    const struct schema_some *next;
} schema_some;

typedef struct schema_world {
    unsigned             types;
    const schema_lits   *applied;
    const schema_choice *choices;
    const schema_values *only; /* enum, const: in use when has_only */
    const schema_values *excluded;
    bool                 has_only;

    const schema_texts *texts; /* all must match */
    uint64_t            min_length, max_length;

    schema_bound           lo, hi;
    const schema_multiple *multiples;

    const schema_items   *items;
    const schema_item_at *item_at;
    const schema_lits    *contains;
    uint64_t              min_items, max_items;
    bool                  unique;

    const schema_layer *layers; /* newest first */
    const schema_named *named, *required;
    const schema_some  *some;
    const schema_lits  *names;
    bool     conditional; /* says what follows if a member is there or not: names matter that are not declared here */
    uint64_t min_props, max_props;

    const json_value          *at; /* a subschema to name in messages */
    const struct schema_world *next;
} schema_world;

#define SCHEMA_NO_LIMIT UINT64_MAX

typedef struct schema_node {
    const schema_lit   *lits;
    size_t              n_lits;
    const schema_world *worlds;
    bool                expanded, expanding, queued;
    bool                deciding;             /* whether it is empty */
    bool                empty, looked, tried; /* proven; not proven by a glance, by a search */
    ir_sym              sym;                  /* -1: none yet */
    ir_rx               text;                 /* -1: not asked yet */
    struct schema_node *next_queued;
} schema_node;

typedef struct schema_resource {
    view              uri;
    const json_value *root;
} schema_resource;

typedef struct schema_class { /* names that nobody declares, and what is said about their values */
    ir_rx              names;
    const schema_lits *lits;
} schema_class;

typedef struct schema_known_classes { /* the last answer of schema_name_classes, and what was asked */
    const schema_layer *layers;
    const schema_lits  *names;
    const view         *taken;
    size_t              n_taken, n;
    schema_class       *list;
} schema_known_classes;

typedef struct schema_ctx {
    ir               *g;
    arena             a;
    err              *e;
    int               rc;
    const json_value *root;
    int               draft;       /* 4, 6, 7, 2019, 2020 */
    bool              draft_named; /* by $schema; without it 2020, and the words of all drafts count */
    unsigned          flags;       /* of schema_compile_with */

    schema_resource     *resources; /* [0] is the document */
    size_t               n_resources;
    map                  anchors;  /* "index#name" -> json_value * */
    map                  refs;     /* base and reference -> where it leads */
    map                  nodes;    /* literals -> schema_node * */
    map                  patterns; /* regular expression -> ir_rx */
    size_t               n_nodes, n_worlds, n_steps;
    size_t               n_states; /* of objects with many required members */
    int                  probing;  /* nesting of emptiness questions */
    int                  nesting;  /* of questions whether alternatives are disjoint */
    bool                 proving;  /* the answer decides about a negation: worth a search through patterns */
    schema_node         *queue, *queue_tail;
    schema_known_classes known_classes;
    ir_sym               any;
    ir_rx                ws, lead[2], colon, plain_number[16]; /* by types; -1: not built yet */
    ir_rx                format_cache[32];
    bool                 format_known[32];
} schema_ctx;

/* Keeps the first error: "schema at #/path: message". Returns the code kept. */
int   schema_fail(schema_ctx *c, const json_value *at, int code, const char *fmt, ...) BASE_PRINTF(4, 5);
void *schema_alloc(schema_ctx *c, size_t bytes); /* NULL and an error kept when the limit is reached */

/* schema_ref.c */
int      schema_resources_find(schema_ctx *c);
bool     schema_ref_resolve(schema_ctx *c, const json_value *at, uint32_t base, view ref, const json_value **out,
                            uint32_t *out_base);
uint32_t schema_base_of(schema_ctx *c, const json_value *s, uint32_t base); /* after s's own $id */

/* schema_read.c: keywords */
schema_keyword schema_keyword_of(const schema_ctx *c, view name); /* KW_NONE also for what the draft does not have */
/* What the keyword has in s; NULL also where it does not count: under this draft, or beside a $ref up to draft 7. */
const json_value *schema_get(const schema_ctx *c, const json_value *s, const char *keyword);
bool              schema_ref_is_all(const schema_ctx *c, const json_value *s); /* its $ref is all that counts */
/* exclusiveMinimum and exclusiveMaximum are flags in draft 4 and numbers later. False: an error is kept. */
bool     schema_flag_fits(schema_ctx *c, const json_value *s, view keyword, const json_value *v);
bool     schema_read_count(schema_ctx *c, const json_value *s, const char *keyword, const json_value *v, uint64_t *out);
unsigned schema_read_types(schema_ctx *c, const json_value *s, const json_value *v);
unsigned schema_type_of(const json_value *v);
bool     schema_is_true(const schema_ctx *c, const json_value *s); /* true, {} or annotations alone */
bool     schema_values_equal(const json_value *a, const json_value *b);
const json_value  *schema_make_bool(bool b);
const json_value  *schema_make_without(schema_ctx *c, view name); /* {"properties": {name: false}} */
schema_lit         schema_lit_of(const json_value *s, uint32_t base, bool negate);
const schema_lits *schema_lits_add(schema_ctx *c, const schema_lits *list, schema_lit l);

/* schema_expand.c, schema_negate.c */
schema_node *schema_node_of(schema_ctx *c, const schema_lits *lits);
bool         schema_node_expand(schema_ctx *c, schema_node *n);
void         schema_world_negate(schema_ctx *c, schema_world *w, schema_lit l, const schema_lits **todo);
void         schema_choice_add(schema_ctx *c, schema_world *w, const schema_lits **alts, size_t n);
void         schema_text_add(schema_ctx *c, schema_world *w, ir_rx rx);
void         schema_required_add(schema_ctx *c, schema_world *w, view name);
void         schema_named_add(schema_ctx *c, schema_world *w, view name, schema_lit l);
void         schema_items_add(schema_ctx *c, schema_world *w, const json_value *prefix, bool has_rest, schema_lit rest,
                              uint32_t base);
void         schema_bound_add(schema_ctx *c, schema_world *w, const json_value *s, const json_value *v, bool upper,
                              bool exclusive);
void         schema_multiple_add(schema_ctx *c, schema_world *w, const json_value *s, const json_value *v, bool negate);
bool         schema_disjoint(schema_ctx *c, schema_lit a, schema_lit b);
bool schema_items_of(schema_ctx *c, const json_value *s, uint32_t base, const json_value **prefix, bool *has_rest,
                     schema_lit *rest);
const json_value *schema_check(schema_ctx *c, const json_value *s, const char *keyword, const json_value *v,
                               json_kind kind); /* v, or NULL and an error when it is of another kind */

/* schema_empty.c: what can be proven without compiling */
bool schema_node_is_empty(schema_ctx *c, schema_node *n);
bool schema_world_is_empty(schema_ctx *c, const schema_world *w);
bool schema_world_accepts(schema_ctx *c, const schema_world *w, const json_value *v);

/* schema_string.c, schema_format.c, schema_number.c, schema_value.c */
bool  schema_pattern(schema_ctx *c, const json_value *s, view pattern, ir_rx *out); /* search semantics */
bool  schema_format(schema_ctx *c, view name, ir_rx *out);                          /* false: an annotation */
ir_rx schema_world_text(schema_ctx *c, const schema_world *w);                      /* decoded text */
ir_rx schema_node_text(schema_ctx *c, schema_node *n); /* the strings among its instances */
ir_rx schema_world_number(schema_ctx *c, const schema_world *w, unsigned types);
bool  schema_dec_read(const json_value *v, schema_dec *out);
int   schema_dec_compare(const schema_dec *a, const schema_dec *b);
ir_rx schema_number_equal(schema_ctx *c, const schema_dec *d);
ir_rx schema_value_rx(schema_ctx *c, const json_value *v); /* the texts of one JSON value */
ir_rx schema_ws(schema_ctx *c);
ir_rx schema_string_rx(schema_ctx *c, ir_rx text); /* the JSON texts of strings whose decoded text matches */

/* schema_sets.c: states that know which of up to SCHEMA_MAX_SET things were written */
ir_sym   schema_set_find(const map *sets, uint64_t place, uint64_t set); /* -1: not built yet */
void     schema_set_keep(schema_ctx *c, map *sets, uint64_t place, uint64_t set, ir_sym sym);
uint64_t schema_set_moves(size_t   n,
                          uint64_t most); /* from sets of less than `most` of n; stops counting at the limit */
/* Every value of the node once. False: they are more than cap, or not a finite list. */
bool schema_node_values(schema_ctx *c, schema_node *n, const json_value **out, size_t cap, size_t *count);

/* schema_names.c */
size_t schema_name_classes(schema_ctx *c, const schema_world *w, const view *taken, size_t n_taken, schema_class **out);

/* schema.c, schema_object.c, schema_array.c */
ir_sym schema_node_sym(schema_ctx *c, schema_node *n);
ir_sym schema_world_object(schema_ctx *c, const schema_world *w);
bool schema_world_strays(const schema_ctx *c, const schema_world *w); /* a negation demands a name that is not listed */
ir_sym             schema_world_array(schema_ctx *c, const schema_world *w);
const schema_lits *schema_name_lits(schema_ctx *c, const schema_world *w, view name);
const schema_lits *schema_index_lits(schema_ctx *c, const schema_world *w, size_t index);
bool               schema_name_allowed(schema_ctx *c, const schema_world *w, view name);
ir_rx              schema_layer_rest(schema_ctx *c, const json_value *s); /* names additionalProperties is for */

#endif
