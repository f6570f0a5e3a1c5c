/* SPDX-License-Identifier: Apache-2.0 */
/* The public C API of libhearth. Types are opaque; every name begins with hearth_. */
#ifndef HEARTH_H
#define HEARTH_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HEARTH_API __attribute__((visibility("default")))
#else
#define HEARTH_API
#endif

/* "MAJOR.MINOR.PATCH" of the library in use. */
HEARTH_API const char *hearth_version(void);

#ifdef __cplusplus
}
#endif

#endif
