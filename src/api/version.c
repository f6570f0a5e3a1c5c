/* SPDX-License-Identifier: Apache-2.0 */
#include "hearth.h"

const char *hearth_version(void) { return HEARTH_VERSION; }
