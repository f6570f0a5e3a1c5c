/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/interrupt.h"

#include <stddef.h>

volatile sig_atomic_t interrupt_count;

static struct sigaction before;

static void on_interrupt(int signal) {
    (void)signal;
    interrupt_count = 1;
}

void interrupt_begin(void) {
    struct sigaction own = { .sa_handler = on_interrupt };
    sigemptyset(&own.sa_mask);
    interrupt_count = 0;
    sigaction(SIGINT, &own, &before);
}

void interrupt_end(void) { sigaction(SIGINT, &before, NULL); }
