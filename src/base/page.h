/* SPDX-License-Identifier: Apache-2.0 */
/* How many positions a page of the cache has: what holds unless something else is asked for, and the bounds. */
#ifndef BASE_PAGE_H
#define BASE_PAGE_H

#define PAGE_TOKENS 32
#define PAGE_TOKENS_MIN 16
#define PAGE_TOKENS_MAX 128

#endif
