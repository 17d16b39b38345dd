// A library that allocates; with DIFFERENT its code is at another address.
#include <stdlib.h>

#ifdef DIFFERENT
__attribute__((noinline)) int before(volatile char *memory) {
    for (int i = 0; i < 100; i++) memory[i] = memory[99 - i] + 1;
    return memory[7];
}
#endif

void *allocate(size_t bytes) {
#ifdef DIFFERENT
    volatile char memory[5000];
    before(memory);
#endif
    void *object = malloc(bytes);
    asm volatile("" ::: "memory");
    return object;
}
