/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting the driver of a GPU before the walls stand: a context that is not made then cannot be made later. Where nobody
 * named a device that is one on the first GPU, and on the others for a model that may be too large for it; options then say
 * how many there are, or that the CPU computes.
 */
#ifndef HOST_WORKER_GPUS_H
#define HOST_WORKER_GPUS_H

#include "engine/engine.h"

void gpus_prepare(engine_options *o, const char *path);

#endif
