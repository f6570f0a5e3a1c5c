/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/forget.h"

#include "formats/model_impl.h"

#include <sys/mman.h>

void model_file_forget(const model_file *m) {
    for (size_t i = 0; i < m->n_maps; i++)
        if (m->maps[i].map.data) madvise((void *)(uintptr_t)m->maps[i].map.data, m->maps[i].map.bytes, MADV_DONTNEED);
}
