/* SPDX-License-Identifier: Apache-2.0 */
#define QUANT_SET quant_table_plain
#include "tensor/quant/set.h"
