/* SPDX-License-Identifier: Apache-2.0 */
/* Ctrl-C, counted instead of ending the program. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <signal.h>

extern volatile sig_atomic_t interrupt_count; /* whoever acts on it sets it back to 0 */

void interrupt_begin(void); /* from here on SIGINT only counts, and interrupts system calls */
void interrupt_end(void);   /* as before */

#endif
