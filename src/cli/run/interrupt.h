/* SPDX-License-Identifier: Apache-2.0 */
/* Ctrl-C, noted instead of ending the program. */
#ifndef CLI_RUN_INTERRUPT_H
#define CLI_RUN_INTERRUPT_H

#include "base/err.h"

#include <signal.h>
#include <stdbool.h>

extern volatile sig_atomic_t interrupt_seen; /* set by Ctrl-C, cleared by interrupt_clear */

int  interrupt_begin(err *e);   /* from here on SIGINT only sets the flag */
void interrupt_also_ends(void); /* nor do SIGTERM and SIGHUP more than that, except where they were ignored */
void interrupt_end(void);       /* as before */
void interrupt_clear(void);

extern volatile sig_atomic_t interrupt_redraw; /* the window has another size, or the program is in front again */

/* Waits until fd can be read or interrupt_redraw is set; false: Ctrl-C came, even if it came just before the call. */
bool interrupt_wait(int fd);

#endif
