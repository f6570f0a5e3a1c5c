/* SPDX-License-Identifier: Apache-2.0 */
/* The chat on a terminal. */
#ifndef CLI_RUN_RUN_CHAT_H
#define CLI_RUN_RUN_CHAT_H

#include "cli/run/turn.h"

int run_chat(session *s, conversation *c, bool verbose, err *e);

#endif
