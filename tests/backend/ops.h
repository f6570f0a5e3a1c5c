/* SPDX-License-Identifier: Apache-2.0 */
/* One batch on two executors, op by op; what each op may differ by is backend_compare's bound. */
#ifndef TESTS_BACKEND_OPS_H
#define TESTS_BACKEND_OPS_H

#include "backend/world.h"

/*
 * Runs the world's batch on its executor and on the reference. *bad_op: the first op that is wrong, with a sentence, or
 * -1. An op that only stores is judged by twins: where the batch's first two sequences are the same tokens at the same
 * positions, it must leave the same bytes in the pages of both.
 */
int ops_check(world *w, nn_exec *reference, int *bad_op, str *report, err *e);

/* States that all of a model's ops are right over random batches. most: positions of a sequence; 0: any. */
void ops_check_model(suite *s, const nn_model *m, nn_kv_type k_type, nn_kv_type v_type, int most);

#endif
