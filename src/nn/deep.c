/* SPDX-License-Identifier: Apache-2.0 */
/* Where the rows of a picture get more than their embedding, where config.json names the layers (Granite 4 Vision). */
#include "nn/config.h"

enum { CORNERS = 4 };

static void add(nn_config *c, int n_layer, int *layer, int n, int64_t at) {
    if (at < 0 || at >= n_layer) {
        nn_config_fail(c, "deepstack_layer_map, spatial_target_layers: layer %lld of %d", (long long)at, n_layer);
        at = 0;
    }
    for (int i = 0; i < n; i++) {
        if (layer[i] == at)
            nn_config_fail(c, "deepstack_layer_map, spatial_target_layers: layer %lld is named twice", (long long)at);
    }
    layer[n] = (int)at;
}

int nn_deep_layers(nn_config *c, int n_layer, int layer[NN_MAX_PARTS]) {
    static const int  usual[CORNERS] = { 12, 15, 18, 21 };
    const json_value *map = nn_config_gguf(c) ? NULL : json_get(c->root, "deepstack_layer_map");
    const json_value *corners = json_get(c->root, "spatial_target_layers");
    bool              said = json_is(corners, JSON_K_ARRAY);
    if (!json_is(map, JSON_K_ARRAY)) return 0;
    if (json_count(map) > NN_MAX_PARTS - CORNERS || (said && json_count(corners) != CORNERS)) {
        nn_config_fail(c, "deepstack_layer_map and spatial_target_layers have %zu and %zu entries", json_count(map),
                       json_count(corners));
        return 0;
    }
    int n = 0;
    for (size_t i = 0; i < json_count(map); i++) {
        int64_t at = -1;
        (void)json_int(json_at(json_at(map, i), 1), &at);
        add(c, n_layer, layer, n++, at);
    }
    for (size_t i = 0; i < CORNERS; i++) {
        int64_t at = said ? -1 : usual[i];
        if (said) (void)json_int(json_at(corners, i), &at);
        add(c, n_layer, layer, n++, at);
    }
    return n;
}
