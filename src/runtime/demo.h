/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The demo model is found from the place of the program or library that holds this code:
 *     <build>/hearth   ../models/demo/demo.gguf
 *     <prefix>/bin     ../share/hearth/models/demo/demo.gguf    also from <prefix>/lib and <prefix>/lib/<machine>
 */
#ifndef RUNTIME_DEMO_H
#define RUNTIME_DEMO_H

#include "base/err.h"

int runtime_demo_path(char **out, err *e); /* the caller frees *out */

#endif
