/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people call a model.
 *
 *   demo                                   the model that ships with Hearth
 *   /x, ./x, ../x, ~/x, x.gguf, a/x.gguf   a path
 *   owner/repo[:QUANT][@revision]          a repository of the Hugging Face hub
 *   owner/repo/dir/file.gguf[@revision]    one file of it
 *   hf://..., hf.co/..., huggingface.co/...  the same in full; pages (https://, /tree/, /blob/, /resolve/) too
 *   name[:tag], library/name[:tag]         a model of the Ollama registry; or what the name means in known.h
 *   user/name:tag                          a user's model there, if tag is not a QUANT and not "latest"
 *   ollama://[HOST/][user/]name[:tag]      the same in full
 *   HOST/user/name[:tag]                   of another registry; HOST has a dot or a port
 *
 * "x" and "x:latest" are the same. A QUANT is a label such as Q4_K_M, IQ3_XXS, UD-Q4_K_XL, BF16, MXFP4.
 * Letter case counts in files and revisions, and nowhere else.
 *
 * The registry's `source` of a pulled model is such a name in full (name_source): names_find compares sources, so that
 * a model is found by its repository whatever its own name is.
 */
#ifndef REGISTRY_NAMES_H
#define REGISTRY_NAMES_H

#include "base/err.h"
#include "base/str.h"
#include "registry/registry.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum name_kind { NAME_DEMO, NAME_PATH, NAME_HF, NAME_OLLAMA } name_kind;

/* Texts are owned (name_ref_deinit); NULL where the name does not say. */
typedef struct name_ref {
    name_kind kind;
    bool      explicit_kind; /* hf://, hf.co/, ollama:// or a registry's host was written */
    char     *path;          /* PATH: as it was written */
    char     *host;          /* OLLAMA: another registry than the usual one */
    char     *owner;         /* HF; OLLAMA: "library" where none was written */
    char     *repo;          /* HF and OLLAMA (the model there) */
    char     *file;          /* HF: path inside the repository */
    char     *quant;         /* HF */
    char     *revision;      /* HF: branch, tag or commit */
    char     *tag;           /* OLLAMA: "latest" where none was written */
} name_ref;

/* ERR_ARG with a sentence for what is not a name. Looks at no file: that a path exists is the caller's to try first. */
int  name_parse(name_ref *out, const char *text, err *e);
void name_ref_deinit(name_ref *n); /* accepts a zeroed one */

bool name_is_quant(view text);

/* The short form, which is the name that a pulled model gets here: "owner/repo:Q4_K_M", "llama3.2:1b". */
void name_alias(const name_ref *n, str *out);
/* In full: "hf://owner/repo/file.gguf@revision", "ollama://[host/]library/llama3.2:1b". */
void name_source(const name_ref *n, str *out);

typedef enum name_format { NAME_ANY_FORMAT, NAME_GGUF, NAME_MLX } name_format; /* MLX: any directory of safetensors */

typedef struct name_wish {
    name_format format;
    const char *file; /* of the repository; or NULL */
} name_wish;

/*
 * A model of the registry by its name: exactly as it is called, else by where it came from (repository, label, file).
 * w may be NULL. ERR_NOTFOUND: none, the sentence names the nearest one if any is near. ERR_ARG: several; the sentence
 * lists them with their sizes.
 */
int names_find(registry *r, const char *text, const name_wish *w, registry_model *out, err *e);

/* Is there a model with a name so similar that it may be meant? names_find's sentence says which. */
bool names_near(registry *r, const char *text);

/* "4.1 GB" in a static size. */
const char *name_bytes(char out[16], double bytes);

#endif
