/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/convert/opened.h"

#include "cli/models/models.h"
#include "kernels/cpu.h"
#include "models/list.h"

#include <stdlib.h>

int opened_bind(opened *o, int ctx, err *e) {
    int rc = nn_model_open(&o->model, o->file, models_list, &(nn_model_options){ .rope_context = ctx }, e);
    if (rc == 0 && !o->model->tape->logits)
        rc = err_set(e, ERR_UNSUPPORTED, "%s turns texts into vectors; it does not predict tokens",
                     model_file_path(o->file));
    return rc;
}

int opened_open(opened *o, const char *name, int ctx, err *e) {
    int rc = cli_model_path(&o->path, name, e);
    if (rc == 0) rc = model_file_open(&o->file, o->path, e);
    return rc == 0 ? opened_bind(o, ctx, e) : rc;
}

int opened_ready(opened *o, int ctx, int threads, nn_observe observe, void *observe_ctx, err *e) {
    simple_options x = { .max_len = ctx,
                         .max_tokens = OPENED_STEP,
                         .n_threads = threads,
                         .k_type = NN_KV_F16,
                         .v_type = NN_KV_F16,
                         .cpu = cpu_detect(),
                         .observe = observe,
                         .observe_ctx = observe_ctx };
    int            rc = simple_open(&o->run, "cpu", o->model, &x, e);
    o->ready = rc == 0;
    return rc;
}

void opened_unbind(opened *o) {
    if (o->ready) simple_close(&o->run);
    nn_model_free(o->model);
    o->ready = false;
    o->model = NULL;
}

void opened_deinit(opened *o) {
    opened_unbind(o);
    model_file_free(o->file);
    free(o->path);
    *o = (opened){ 0 };
}
