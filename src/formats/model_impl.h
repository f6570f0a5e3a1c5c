/* SPDX-License-Identifier: Apache-2.0 */
/* What a model_file is made of; for the files that open one: model_file.c, open_gguf.c, open_dir.c. */
#ifndef FORMATS_MODEL_IMPL_H
#define FORMATS_MODEL_IMPL_H

#include "base/file.h"
#include "formats/gguf.h"
#include "formats/hf.h"
#include "formats/table.h"

typedef struct model_mapping {
    file_map map;
    char    *path;
} model_mapping;

struct model_file {
    model_format format;
    char        *path; /* as it was given */
    char        *dir;  /* where sidecars lie */
    char        *arch; /* NULL: none named */

    model_mapping *maps;
    size_t         n_maps, maps_cap;
    size_t         bytes; /* of all maps */

    tensor_table      tensors;
    gguf              meta;           /* GGUF */
    hf_config         config;         /* directories; root is NULL without config.json */
    arena             generation_mem; /* holds generation */
    const json_value *generation;
    arena             packed; /* weights that were packed in another way (formats/packed.h) */
};

/* Maps a weight file and keeps the mapping in m. Says so when it is a Git LFS pointer instead of the file. */
int model_map(model_file *m, const char *path, file_map *out, err *e);

/* Opens the GGUF file, or the set that the file is a part of. */
int model_open_gguf(model_file *m, const char *path, err *e);

/* Opens a directory; only_weights (a path, or NULL) names the one weight file to read instead of looking for them. */
int model_open_dir(model_file *m, const char *dir, const char *only_weights, err *e);

/* "x-00002-of-00005<suffix>": true with the length of "x", 2 and 5. */
bool model_split_name(const char *name, const char *suffix, size_t *stem, int *part, int *count);

/* The names in dir that end with the suffix, sorted; *names is one allocation per name and one for the list. */
int  model_list_dir(const char *dir, const char *suffix, char ***names, size_t *count, err *e);
void model_list_free(char **names, size_t count);

#endif
