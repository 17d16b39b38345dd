/* For programs with custom allocators: reports their objects, which malloc does not see, to `nearside record`.
 *
 * No library needs to be linked: if the program is not being recorded, each call only tests an address.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef NEARSIDE_H
#define NEARSIDE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An object begins. Call this once its memory has no other owner. Its site is the function that calls this. */
__attribute__((weak)) extern void nearside_allocated(const void *address, size_t bytes);

/* The object ends. Call this before its memory can be reused. */
__attribute__((weak)) extern void nearside_freed(const void *address);

#ifdef __cplusplus
}
#endif

#define NEARSIDE_ALLOCATED(address, bytes) (nearside_allocated ? nearside_allocated((address), (bytes)) : (void)0)
#define NEARSIDE_FREED(address) (nearside_freed ? nearside_freed(address) : (void)0)

#endif
