/* Threads of node 0 fill three pieces of memory and read them for a while; the program prints on which nodes they are at the
 * end. One has a name of the library, one is a variable, and one has no name. Argument 1: how often they are read. */
#include <nearside.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_on.h"

#define PAGE 4096UL
#define PAGES 1024
#define NODES 4

char grid[PAGES * PAGE] __attribute__((aligned(4096)));

static void show(const char *name, const char *memory) {
    uint64_t on[NODES];
    check(ns_where(memory, PAGES * PAGE, on, NODES, NULL, &error));
    printf("%s:", name);
    for (int node = 0; node < NODES; node++)
        printf(" %d", (int)on[node]);
    printf("\n");
}

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    run_on("0");
    char *weights = ns_alloc(PAGES * PAGE, NS_DEFAULT, NULL, &error), *rest = ns_alloc(PAGES * PAGE, NS_DEFAULT, NULL, &error);
    check(weights == NULL || rest == NULL ? -1 : 0);
    ns_region *name = NULL;
    check(ns_region_new(weights, PAGES * PAGE, "weights", &name, &error));
    memset(weights, 1, PAGES * PAGE), memset(grid, 1, PAGES * PAGE), memset(rest, 1, PAGES * PAGE);
    volatile long sum = 0;
    for (int round = 0; round < atoi(arguments[1]); round++)
        for (unsigned long at = 0; at < PAGES * PAGE; at += 64)
            sum += weights[at] + grid[at] + rest[at];
    show("weights", weights), show("grid", grid), show("rest", rest);
    ns_region_free(name);
    return sum == 0;
}
