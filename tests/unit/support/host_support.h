/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a host whose events reach the request's own callback, as a runtime's would. */
#ifndef TESTS_HOST_SUPPORT_H
#define TESTS_HOST_SUPPORT_H

#include "host/host.h"

/* An event that cannot be read is told to host_distrust and not passed on, unless it is the last one: then an ERROR
 * comes in its place. */
int test_host_submit(host *h, const char *model, const runtime_request *q, uint64_t *id, err *e);

#endif
