// Every way to create an object, once. Prints the results.
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void print(const char *name, void *address, size_t bytes) {
    printf("object %s %p %zu\n", name, address, bytes);
}

__attribute__((noinline)) void *inner(size_t bytes) {
    void *object = malloc(bytes);
    asm volatile("" ::: "memory");
    return object;
}

__attribute__((noinline)) void *outer(size_t bytes) {
    void *object = inner(bytes);
    asm volatile("" ::: "memory");
    return object;
}

int main(void) {
    static char line[1 << 16];
    setvbuf(stdout, line, _IOFBF, sizeof line);
    void *object = outer(1111);
    print("malloc", object, 1111);
    free(object);
    object = calloc(3, 111);
    print("calloc", object, 333);
    free(object);
    object = aligned_alloc(256, 512);
    print("aligned_alloc", object, 512);
    free(object);
    object = memalign(4096, 777);
    print("memalign", object, 777);
    free(object);
    if (posix_memalign(&object, 1024, 888)) return 1;
    print("posix_memalign", object, 888);
    free(object);
    object = valloc(999);
    print("valloc", object, 999);
    free(object);
    object = pvalloc(1001);
    print("pvalloc", object, 1001);
    free(object);
    object = realloc(NULL, 2000);
    print("realloc_new", object, 2000);
    void *in_the_way = malloc(100);
    void *moved = reallocarray(object, 1000, 1000);
    print("realloc_moved", moved, 1000000);
    void *smaller = realloc(moved, 900000);
    print("realloc_in_place", smaller, 900000);
    if (realloc(smaller, -1ul / 2)) return 2;
    free(smaller);
    free(in_the_way);
    free(NULL);
    if (malloc(-1ul / 2)) return 3;
    char *mapped = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    print("mmap", mapped, 1 << 20);
    char *remapped = mremap(mapped, 1 << 20, 64 << 20, MREMAP_MAYMOVE);
    print("mremap", remapped, 64 << 20);
    munmap(remapped, 64 << 20);
    FILE *self = fopen("/proc/self/exe", "r");
    char *file = mmap64(NULL, 5000, PROT_READ, MAP_PRIVATE, fileno(self), 4096);
    print("file", file, 8192);
    munmap(file, 5000);
    fclose(self);
    return 0;
}
