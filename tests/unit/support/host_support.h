/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a host whose events reach the request's own callback, as a runtime's would. */
#ifndef TESTS_HOST_SUPPORT_H
#define TESTS_HOST_SUPPORT_H

#include "host/host.h"

/* After an event that cannot be read, which is told to host_distrust, only the last one comes: an ERROR with what was
 * wrong. */
int test_host_submit(host *h, const char *model, const runtime_request *q, uint64_t *id, err *e);

#endif
