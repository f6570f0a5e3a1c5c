/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups around a part of a model: in all of config.json, not in the object that is the part's. */
#include "nn/config.h"

const json_value *nn_config_step_out(nn_config *c) {
    const json_value *part = c->root;
    if (c->outer) c->root = c->outer;
    return part;
}

int64_t nn_config_outer_int(nn_config *c, const char *gguf, const char *hf, int64_t dflt) {
    const json_value *part = nn_config_step_out(c);
    int64_t           x = nn_config_int(c, gguf, hf, dflt);
    c->root = part;
    return x;
}

double nn_config_outer_real(nn_config *c, const char *gguf, const char *hf, double dflt) {
    const json_value *part = nn_config_step_out(c);
    double            x = nn_config_real(c, gguf, hf, dflt);
    c->root = part;
    return x;
}

nn_act_kind nn_config_outer_act(nn_config *c, const char *gguf, const char *hf, nn_act_kind dflt) {
    const json_value *part = nn_config_step_out(c);
    nn_act_kind       x = nn_config_act(c, gguf, hf, dflt);
    c->root = part;
    return x;
}
