/* SPDX-License-Identifier: Apache-2.0 */
#include "base/noalloc.h"

_Thread_local volatile int noalloc_depth;
