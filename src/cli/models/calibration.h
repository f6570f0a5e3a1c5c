/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remembered speeds: what a model did on this machine when it was measured.
 *
 * They lie in $XDG_DATA_HOME/hearth/calibration.json, one object per model and machine:
 *
 *   {"version": 1, "entries": [{"model": HEX, "machine": TEXT, "name": TEXT, "prompt": tokens/s, "generation":
 * tokens/s, "prompt_tokens": N, "generated_tokens": N, "threads": N, "cache_type": "f16", "token_bytes": N,
 *     "token_products": N, "measured_at": seconds since 1970, "disk": bytes/s}]}
 *
 * "disk" is there where experts were streamed.
 *
 * A model is known by the names, types and shapes of its tensors: speed depends on nothing else, so a file may move and
 * a fine-tuned model shares the figures of its base. A machine is its CPU's name, instruction sets and cores. A file
 * that cannot be read as this counts as empty and is replaced by the next measurement.
 */
#ifndef CLI_MODELS_CALIBRATION_H
#define CLI_MODELS_CALIBRATION_H

#include "base/err.h"
#include "formats/model_file.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct calibration {
    char    model[65], machine[256], name[128], cache_type[16];
    double  prompt, generation; /* tokens per second */
    int64_t prompt_tokens, generated_tokens, threads;
    double  token_bytes, token_products; /* of the model (runtime/need.h) */
    int64_t measured_at;
    double  disk; /* bytes per second of the file that experts were read from; 0: none were */
} calibration;

void calibration_model_key(char out[65], const model_file *f);
void calibration_machine_key(char out[256], const char *gpu); /* gpu: the one that computes; "": the CPU does */

/* True: *out is what was measured for this model, machine and page type. */
bool calibration_find(calibration *out, const char *model, const char *machine, const char *cache_type);

/*
 * True: another model was measured on this machine, and *out holds what its figures mean for one that reads so many
 * bytes and does so many products per token; name is the other model's. An estimate: reading limits generation,
 * products limit prompts.
 */
bool calibration_estimate(calibration *out, const char *machine, double token_bytes, double token_products);

int calibration_store(const calibration *c,
                      err               *e); /* replaces an older one of the same model, machine and page type */

#endif
