/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_PARSE_H
#define CONFIG_PARSE_H

#include "config/schema.h"

/* Fills the fields of v that the type uses; text is borrowed. Not for TEXTS, LIST and NAMED. unit 0: 1. */
int config_parse_scalar(const config_key *k, const char *text, double unit, config_value *v, err *e);

bool config_parse_bytes(const char *text, double *out); /* "512MiB"; "none": -1 */

#endif
