/* SPDX-License-Identifier: Apache-2.0 */
/* Every model family of this build. */
#ifndef MODELS_LIST_H
#define MODELS_LIST_H

#include "nn/nn.h"

extern const nn_arch *const models_list[]; /* ends with NULL */

#endif
