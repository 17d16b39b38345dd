/* For allocators of a program's own: tells `nearside record` of objects that malloc does not know.
 *
 * Nothing needs to be linked: where the program is not recorded, the calls are nothing but a test of an address.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef NEARSIDE_H
#define NEARSIDE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An object begins: to be called once its memory is nobody else's. Its site is the function that calls this. */
__attribute__((weak)) extern void nearside_allocated(const void *address, size_t bytes);

/* The object ends: to be called before its memory can become somebody else's. */
__attribute__((weak)) extern void nearside_freed(const void *address);

#ifdef __cplusplus
}
#endif

#define NEARSIDE_ALLOCATED(address, bytes) (nearside_allocated ? nearside_allocated((address), (bytes)) : (void)0)
#define NEARSIDE_FREED(address) (nearside_freed ? nearside_freed(address) : (void)0)

#endif
