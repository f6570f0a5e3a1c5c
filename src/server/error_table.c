/* SPDX-License-Identifier: Apache-2.0 */
#include "server/error_table.h"

#include "base/err.h"

#include <stddef.h>

/* ERR_LIMIT is a limit that the request exceeds by itself: the same request will never pass. Clients send again what was answered
 * with 408, 409, 429 or 5xx; what somebody cancelled stays cancelled. */
static const error_kind kinds[] = {
    { ERR_NOMEM, 503, "out_of_memory" },
    { ERR_IO, 500, "" },
    { ERR_FORMAT, 400, "" },
    { ERR_UNSUPPORTED, 400, "unsupported" },
    { ERR_ARG, 400, "" },
    { ERR_LIMIT, 400, "" },
    { ERR_NOTFOUND, 404, "model_not_found" },
    { ERR_CANCELLED, 499, "cancelled" },
    { ERR_BUSY, 503, "overloaded" },
    { ERR_LOST, 503, "device_lost" },
    { ERR_CONTEXT, 400, "context_length_exceeded" },
    { ERR_UNLOADED, 500, "model_not_loaded" },
    { ERR_DEADLINE, 504, "deadline_exceeded" },
};

#define OURS "server_error"
#define BAD "invalid_request_error"

static const error_status statuses[] = {
    { 200, "OK", "", "", "", 0 },
    { 201, "Created", "", "", "", 0 },
    { 202, "Accepted", "", "", "", 0 },
    { 204, "No Content", "", "", "", 0 },
    { 304, "Not Modified", "", "", "", 0 },
    { 400, "Bad Request", BAD, "invalid_prompt", BAD, 3 },
    { 401, "Unauthorized", BAD, "invalid_prompt", "authentication_error", 16 },
    { 403, "Forbidden", BAD, "invalid_prompt", "permission_error", 7 },
    { 404, "Not Found", BAD, "invalid_prompt", "not_found_error", 5 },
    { 405, "Method Not Allowed", BAD, "invalid_prompt", BAD, 12 },
    { 406, "Not Acceptable", BAD, "invalid_prompt", BAD, 3 },
    { 408, "Request Timeout", BAD, "invalid_prompt", BAD, 4 },
    { 409, "Conflict", BAD, "invalid_prompt", BAD, 6 },
    { 413, "Content Too Large", BAD, "invalid_prompt", "request_too_large", 8 },
    { 414, "URI Too Long", BAD, "invalid_prompt", BAD, 3 },
    { 415, "Unsupported Media Type", BAD, "invalid_prompt", BAD, 3 },
    { 417, "Expectation Failed", BAD, "invalid_prompt", BAD, 3 },
    { 422, "Unprocessable Content", BAD, "invalid_prompt", BAD, 3 },
    { 429, "Too Many Requests", "rate_limit_error", "invalid_prompt", "rate_limit_error", 8 },
    { 431, "Request Header Fields Too Large", BAD, "invalid_prompt", BAD, 8 },
    { 499, "Client Closed Request", BAD, "invalid_prompt", BAD, 1 },
    { 500, "Internal Server Error", OURS, OURS, "api_error", 13 },
    { 501, "Not Implemented", "not_implemented_error", OURS, "api_error", 12 },
    { 503, "Service Unavailable", "service_unavailable_error", OURS, "overloaded_error", 14 },
    { 504, "Gateway Timeout", OURS, OURS, "api_error", 4 },
    { 505, "HTTP Version Not Supported", BAD, OURS, BAD, 12 },
    { 507, "Insufficient Storage", OURS, OURS, "api_error", 8 },
};

const error_kind *error_kind_of(int code) {
    static const error_kind other = { 0, 500, "" };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (kinds[i].code == code) return &kinds[i];
    }
    return &other;
}

const error_status *error_status_of(int status) {
    static const error_status other = { 0, "Unknown", OURS, OURS, "api_error", 2 };
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        if (statuses[i].status == status) return &statuses[i];
    }
    return &other;
}
