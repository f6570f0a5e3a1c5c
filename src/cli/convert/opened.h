/* SPDX-License-Identifier: Apache-2.0 */
/* A model that a command evaluates by itself, without an engine. */
#ifndef CLI_CONVERT_OPENED_H
#define CLI_CONVERT_OPENED_H

#include "nn/model.h"
#include "tools/simple.h"

typedef struct opened {
    char       *path;
    model_file *file;
    nn_model   *model;
    simple      run;
    bool        ready; /* run is open */
} opened;

enum { OPENED_STEP = 128 }; /* tokens of one step */

/* A model that predicts tokens; ctx positions. */
int  opened_open(opened *o, const char *name, int ctx, err *e);
int  opened_ready(opened *o, int ctx, int threads, nn_observe observe, void *observe_ctx, err *e);
void opened_deinit(opened *o); /* accepts a zeroed one */

/* The model of o->file as it is now, and back to the file alone. */
int  opened_bind(opened *o, int ctx, err *e);
void opened_unbind(opened *o);

#endif
