/* SPDX-License-Identifier: Apache-2.0 */
/* The `hearth` program as a person runs it: in a shell, judged by what it prints and by its exit status. */
#ifndef UNIT_SUPPORT_PROGRAM_H
#define UNIT_SUPPORT_PROGRAM_H

/* Runs `<before> hearth <arguments>`; what it printed (stdout, or both with "2>&1") in *out, which the caller frees.
 * Returns the exit status. Skips the test where HEARTH_PROGRAM is not set. */
int program_run(const char *before, const char *arguments, char **out);

/* It ends with 0 and prints exactly this. */
void program_prints(const char *before, const char *arguments, const char *want);

/* It ends with this status and says this somewhere. */
void program_fails(const char *arguments, int status, const char *want);

#endif
