/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of server.yaml. `hearth config init` writes them all, with their defaults, as comments. */
#ifndef CONFIG_SERVER_H
#define CONFIG_SERVER_H

#include "config/schema.h"

extern const config_schema config_server_schema;

/* What the table cannot say: keys that belong together, two models with one name. */
void config_server_check(const config_values *v, config_report *r);

/* The whole table as a YAML file: every key commented out with its default and what it means. */
void config_document_yaml(const config_schema *s, const char *head, str *out);

#endif
