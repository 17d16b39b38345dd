// Allocates objects of one size from several places, and prints which of their memory has the mark that keeps it on small
// pages: `small NAME FIRST_OFFSET BYTES`, in order.
#define _GNU_SOURCE
#include <nearside.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BYTES = 16 << 20 };

static void print(const char *name, char *object, size_t bytes) {
    printf("object %s %p %zu\n", name, (void *)object, bytes);
    FILE *smaps = fopen("/proc/self/smaps", "r");
    static char line[4096];
    unsigned long start = 0, end = 0, from, to, first = (unsigned long)object;
    while (smaps && fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) start = from, end = to;
        if (!strncmp(line, "VmFlags:", 8) && strstr(line, " nh") && start < first + bytes && first < end)
            printf("small %s %ld %lu\n", name, (long)(start - first), end - start);
    }
    if (smaps) fclose(smaps);
}

__attribute__((noinline)) char *table(size_t bytes) {
    char *object = aligned_alloc(2 << 20, bytes);
    asm volatile("" ::: "memory");
    return object;
}

__attribute__((noinline)) char *other(size_t bytes) {
    char *object = aligned_alloc(2 << 20, bytes);
    asm volatile("" ::: "memory");
    return object;
}

int main(void) {
    static char line[1 << 16];
    setvbuf(stdout, line, _IOFBF, sizeof line);
    print("table", table(BYTES), BYTES);
    print("other", other(BYTES), BYTES);
    print("larger", table(2 * BYTES), 2 * BYTES);
    char *named = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (nearside_name_region) nearside_name_region(named, BYTES, "named table");
    print("named", named, BYTES);
    memset(named, 7, BYTES);
    // The kernel moves one mapping at a time, and the marks have made several.
    char *moved = mremap(named, BYTES, 4 * BYTES, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) return 1;
    return moved[BYTES - 1] == 7 ? 0 : 2;
}
