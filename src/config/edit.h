/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One key of a file changed, all else of its text as it was: comments, order, other keys.
 *
 * Only what lines allow is done. A value on one line of a block map is replaced or taken away with its line; a new key
 * goes to the head of its section, a new section to the end. A map in braces, a value over several lines and a file that
 * does not read are refused by name, and so is a change after which any other key would mean something else.
 */
#ifndef CONFIG_EDIT_H
#define CONFIG_EDIT_H

#include "config/schema.h"

/* Appends the new text to out. value: as YAML writes it on one line; NULL: the key is taken away. */
int config_edit(view text, const config_schema *s, const config_key *k, const char *value, str *out, err *e);

bool config_value_same(const config_key *k, const config_value *a, const config_value *b); /* whatever their origins */

#endif
