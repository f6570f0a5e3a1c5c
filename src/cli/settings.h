/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What holds for this run of the program: flags > environment HEARTH_* > a model's YAML > the registry's settings of a
 * model > server.yaml > defaults. The keys are those of config/server.h and config/model.h.
 *
 * server.yaml is --config FILE, else $HEARTH_CONFIG, else $XDG_CONFIG_HOME/hearth/server.yaml (may be absent); none
 * with
 * --no-config.
 */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include "cli/cli.h"
#include "config/model.h"
#include "config/server.h"
#include "runtime/runtime.h"

typedef struct settings {
    arena         mem;
    config_values server;
    char         *path; /* of server.yaml, whether it is there or not; NULL: no place for it, or --no-config */
    bool          found;
    bool          no_config; /* models' files are not read either */
} settings;

/* Problems of a file are all printed; e then says how many there were. */
int  settings_load(settings *s, const cli_args *a, err *e);
void settings_deinit(settings *s); /* accepts a zeroed one */

/* server.yaml and the environment for somebody who wants to know where the server is: what is wrong in them is left out
 * without a word. Values live in mem. */
int settings_peek(config_values *out, arena *mem, err *e);

/* "$XDG_CONFIG_HOME/hearth" (or below HOME); empty where there is none. */
void settings_directory(str *out);
/* The file of a model's own settings, which may be absent; empty where there is no place. */
void settings_model_path(const char *model, str *out);

/* One model's settings as wishes of its owner. */
typedef struct model_settings {
    config_model     model;
    config_values    values;
    runtime_settings runtime; /* borrows from model and mem */
    arena            mem;
} model_settings;

/* name: as in `hearth list`; NULL: a model without one, for which the server's settings and the flags hold. entry: its
 * entry of models.list, or NULL. */
int  settings_model(const settings *s, const cli_args *a, const char *name, const config_values *entry,
                    model_settings *out, err *e);
void model_settings_deinit(model_settings *m); /* accepts a zeroed one */

/* Engine options that every model gets; texts are borrowed from s. */
int settings_engine(settings *s, runtime_options *out, err *e);

#endif
