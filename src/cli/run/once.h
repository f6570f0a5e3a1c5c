/* SPDX-License-Identifier: Apache-2.0 */
/* One request to a model, from its beginning to its end, without printing anything. */
#ifndef CLI_RUN_ONCE_H
#define CLI_RUN_ONCE_H

#include "runtime/runtime.h"

/* Waits for the end. Content is appended to *text (may be NULL); on_event and ctx of the request are not used. */
int once_ask(runtime *r, const runtime_request *q, str *text, runtime_usage *usage, err *e);

#endif
