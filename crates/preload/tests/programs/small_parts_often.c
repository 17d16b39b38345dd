// Allocates and frees an object of one place ROUNDS times, in a process with this number of other mappings:
// `small_parts_often [ROUNDS [MAPPINGS]]`.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { BYTES = 16 << 20, PAGE = 4096 };

__attribute__((noinline)) char *table(size_t bytes) {
    char *object = aligned_alloc(2 << 20, bytes);
    asm volatile("" ::: "memory");
    return object;
}

int main(int count, char **arguments) {
    long rounds = count > 1 ? atol(arguments[1]) : 1, mappings = count > 2 ? atol(arguments[2]) : 1;
    char *pages = mmap(NULL, mappings * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return 1;
    // The kernel has neighbours with equal rights as one mapping.
    for (long page = 1; page < mappings; page += 2)
        if (mprotect(pages + page * PAGE, PAGE, PROT_READ)) return 2;
    char *last = NULL;
    for (long round = 0; round < rounds; round++) {
        free(last);
        last = table(BYTES);
    }
    printf("object table %p %d\n", (void *)last, BYTES);
    return 0;
}
