/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of the public API. */
#ifndef API_API_H
#define API_API_H

#include "hearth.h"
#include "runtime/runtime.h"

struct hearth_model {
    runtime *r;
};

/* Copies the sentence; e may be NULL. Returns the code. */
int api_fail(hearth_error *e, const err *why);

/* A caller's structure of an earlier or later version over our defaults. */
int api_request(const hearth_request *q, hearth_request *full, err *e);
/* The same as the runtime takes it; borrows from full. *stop is the caller's to free. */
int api_runtime_request(const hearth_request *full, runtime_request *out, view **stop, err *e);

#endif
