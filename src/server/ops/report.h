/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of a running server as JSON, for single answers and for events alike. On the I/O thread, which owns them. */
#ifndef SERVER_OPS_REPORT_H
#define SERVER_OPS_REPORT_H

#include "server/http/json_out.h"
#include "server/internal.h"

uint64_t report_resident_bytes(void);
double   report_uptime(const server *s); /* in seconds */
void     report_stats(server *s, const host_stats *h, str *out);
void     report_capabilities(jw *w, const host_model *m);           /* of one that is described, in Ollama's words */
void     report_requests(server *s, const exchange *but, str *out); /* all under way but that one and open pages */

#endif
