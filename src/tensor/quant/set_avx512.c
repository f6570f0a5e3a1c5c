/* SPDX-License-Identifier: Apache-2.0 */
#define QUANT_SET quant_table_avx512
#include "tensor/quant/set.h"
