/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a Modelfile and as a name; what was read prints, and reads back as the same. */
#include "registry/modelfile.h"
#include "registry/names.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void fuzz_name(const uint8_t *data, size_t bytes) {
    char    *text = strndup((const char *)data, bytes);
    name_ref n;
    if (text && name_parse(&n, text, NULL) == 0) {
        str full, again;
        str_init(&full);
        str_init(&again);
        name_source(&n, &full);
        name_ref_deinit(&n);
        if (name_parse(&n, str_cstr(&full), NULL) < 0) abort();
        name_source(&n, &again);
        if (strcmp(str_cstr(&full), str_cstr(&again)) != 0) abort();
        name_ref_deinit(&n);
        str_deinit(&full);
        str_deinit(&again);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    modelfile m;
    str       json, file, again;
    fuzz_name(data, bytes);
    if (modelfile_parse(&m, (const char *)data, bytes, "f", NULL) < 0) return 0;
    str_init(&json);
    str_init(&file);
    str_init(&again);
    if (modelfile_settings(&m, NULL, &json, NULL) < 0) abort();
    int rc = modelfile_print(m.from, str_cstr(&json), &file, NULL);
    modelfile_deinit(&m);
    if (rc == 0) {
        if (modelfile_parse(&m, str_cstr(&file), file.len, "g", NULL) < 0) abort();
        if (modelfile_settings(&m, NULL, &again, NULL) < 0) abort();
        if (strcmp(str_cstr(&json), str_cstr(&again)) != 0) abort();
        modelfile_deinit(&m);
    }
    str_deinit(&json);
    str_deinit(&file);
    str_deinit(&again);
    return 0;
}
