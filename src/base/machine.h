/* SPDX-License-Identifier: Apache-2.0 */
/* What machine this is: its memory and its processor. */
#ifndef BASE_MACHINE_H
#define BASE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

uint64_t machine_memory_total(void); /* 0: not known */

/*
 * Bytes that this process can use: MemAvailable of the system, or less where a control group (v1 or v2, any level)
 * limits it. 0: not known. *limit_from (may be NULL) is "memory" or "cgroup".
 */
uint64_t machine_memory_available(const char **limit_from);

void machine_cpu_name(char *out, size_t bytes); /* "CPU" where the system does not say */

#endif
