/* SPDX-License-Identifier: Apache-2.0 */
/* The tests that stand behind "is". */
#include "template/ast.h"
#include "template/define.h"

static tv modulo(tr *r, tv v, tv by) { return tv_binary(r, TOK_MOD, v, by); }

TEST_IS(t_odd, tv_equal(r, modulo(r, v, tv_int(2)), tv_int(1)))
TEST_IS(t_even, tv_equal(r, modulo(r, v, tv_int(2)), tv_int(0)))
TEST_IS(t_divisibleby, tv_equal(r, modulo(r, v, a[0]), tv_int(0)))
TEST_IS(t_defined, v.kind != TV_UNDEF)
TEST_IS(t_undefined, v.kind == TV_UNDEF)
TEST_IS(t_none, v.kind == TV_NONE)
TEST_IS(t_boolean, v.kind == TV_BOOL)
TEST_IS(t_false, v.kind == TV_BOOL && !v.u.b)
TEST_IS(t_true, v.kind == TV_BOOL && v.u.b)
TEST_IS(t_integer, v.kind == TV_INT || v.kind == TV_BIG)
TEST_IS(t_float, v.kind == TV_FLOAT)
TEST_IS(t_number, tv_is_num(v))
TEST_IS(t_string, v.kind == TV_STR)
TEST_IS(t_mapping, v.kind == TV_DICT)
TEST_IS(t_lower, tv_is_case(tv_to_str(r, v), false))
TEST_IS(t_upper, tv_is_case(tv_to_str(r, v), true))
TEST_IS(t_iterable, tv_iterable(v) || v.kind == TV_LOOP)
TEST_IS(t_callable, tv_callable(v))
TEST_IS(t_sameas, tv_identical(v, a[0]))
TEST_IS(t_escaped, v.kind == TV_STR && v.flags & TV_SAFE)
TEST_IS(t_in, tv_contains(r, v, a[0]))
TEST_IS(t_eq, tv_equal(r, v, a[0]))
TEST_IS(t_ne, !tv_equal(r, v, a[0]))
TEST_IS(t_lt, tv_less(r, v, a[0], "<"))
TEST_IS(t_le, tv_less(r, v, a[0], "<="))
TEST_IS(t_gt, tv_less(r, v, a[0], ">"))
TEST_IS(t_ge, tv_less(r, v, a[0], ">="))

/* Has a length and takes subscripts; an undefined value has both. */
TEST_IS(t_sequence, v.kind == TV_STR || tv_is_seq(v) || v.kind == TV_DICT || v.kind == TV_RANGE || v.kind == TV_UNDEF)

static bool known(tr *r, tv v, bool filter) {
    if (!tv_hashable(v)) tr_fail(r, "unhashable type: '%s'", tv_type_name(v));
    if (v.kind != TV_STR) return false;
    return filter ? tv_filter_find(tv_view(v)) != NULL : tv_test_find(tv_view(v)) != NULL;
}

TEST_IS(t_filter, known(r, v, true))
TEST_IS(t_test, known(r, v, false))

static const tv_test TESTS[] = {
    { "defined", t_defined, NULL },
    { "undefined", t_undefined, NULL },
    { "none", t_none, NULL },
    { "string", t_string, NULL },
    { "mapping", t_mapping, NULL },
    { "iterable", t_iterable, NULL },
    { "sequence", t_sequence, NULL },
    { "boolean", t_boolean, NULL },
    { "false", t_false, NULL },
    { "true", t_true, NULL },
    { "integer", t_integer, NULL },
    { "float", t_float, NULL },
    { "number", t_number, NULL },
    { "odd", t_odd, NULL },
    { "even", t_even, NULL },
    { "divisibleby", t_divisibleby, "num" },
    { "lower", t_lower, NULL },
    { "upper", t_upper, NULL },
    { "callable", t_callable, NULL },
    { "sameas", t_sameas, "other" },
    { "escaped", t_escaped, NULL },
    { "in", t_in, "seq" },
    { "filter", t_filter, NULL },
    { "test", t_test, NULL },
    { "==", t_eq, "" },
    { "eq", t_eq, "" },
    { "equalto", t_eq, "" },
    { "!=", t_ne, "" },
    { "ne", t_ne, "" },
    { ">", t_gt, "" },
    { "gt", t_gt, "" },
    { "greaterthan", t_gt, "" },
    { ">=", t_ge, "" },
    { "ge", t_ge, "" },
    { "<", t_lt, "" },
    { "lt", t_lt, "" },
    { "lessthan", t_lt, "" },
    { "<=", t_le, "" },
    { "le", t_le, "" },
    { 0 },
};

const tv_test *tv_test_find(view name) {
    for (const tv_test *t = TESTS; t->name; t++) {
        if (view_eq_c(name, t->name)) return t;
    }
    return NULL;
}

bool tv_test_apply(tr *r, const tv_test *t, tv on, const tv_args *args) {
    tv          argv[1] = { { 0 } };
    const char *names[1] = { t->param };
    int         n = t->param != NULL;
    tv_bind(r, t->name, args, names, n, n, argv);
    return t->fn(r, on, argv);
}
