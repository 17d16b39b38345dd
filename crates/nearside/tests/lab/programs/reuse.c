/* Two sites that allocate, use and free objects in turn, always at the same address. */
#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 96 << 10, LINE = 64 };

#define USED __attribute__((noinline, noclone))

static USED char *site_a(void) {
    char *object = malloc(BYTES);
    __asm__ volatile("" : "+r"(object));
    return object;
}

static USED char *site_b(void) {
    char *object = malloc(BYTES);
    __asm__ volatile("" : "+r"(object));
    return object;
}

static USED void write_a(volatile char *object) {
    for (int at = 0; at < BYTES; at += LINE)
        object[at] = 1;
}

static USED void write_b(volatile char *object) {
    for (int at = 0; at < BYTES; at += LINE)
        object[at] = 2;
}

int main(void) {
    char *first = site_a();
    free(first);
    for (int round = 0; round < 100; round++) {
        char *a = site_a();
        write_a(a);
        free(a);
        char *b = site_b();
        write_b(b);
        free(b);
        if (a != first || b != first)
            return 1;
    }
    puts("reused");
    return 0;
}
