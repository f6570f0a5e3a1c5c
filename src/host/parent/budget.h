/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory models may take together. A model fits where it fits on every device that it needs. */
#ifndef HOST_PARENT_BUDGET_H
#define HOST_PARENT_BUDGET_H

#include "base/device_memory.h"

/* A device on which bytes are needed although it has no budget; NULL: none. */
const char *budget_unknown(const device_memory *budget, const device_memory *wants);
/* The first device on which that much does not fit beside what is taken; NULL: it fits everywhere. */
const char *budget_lacking(const device_memory *budget, const device_memory *taken, const device_memory *wants);
/* The first device of which more is taken than there is; NULL: none. */
const char *budget_exceeded(const device_memory *budget, const device_memory *taken);
/* Would it help if this one went? It has something on a device that is lacking; or nothing lacks, and only a place
 * does. */
bool budget_helps(const device_memory *budget, const device_memory *taken, const device_memory *wants,
                  const device_memory *goes);

#endif
