/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models that ship with the program, "demo" and "vision-demo", are found from the place of the program or library that
 * holds this code:
 *     <build>/hearth   ../models/NAME/NAME.gguf
 *     <prefix>/bin     ../share/hearth/models/NAME/NAME.gguf    also from <prefix>/lib and <prefix>/lib/<machine>
 */
#ifndef RUNTIME_DEMO_H
#define RUNTIME_DEMO_H

#include "base/err.h"

#include <stdbool.h>

#define RUNTIME_DEMO "demo"
#define RUNTIME_VISION_DEMO "vision-demo"

bool runtime_is_demo(const char *name);
int  runtime_demo_path(char **out, const char *name, err *e); /* of one of these; the caller frees *out */

#endif
