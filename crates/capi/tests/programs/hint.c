/* Reads memory of node 0 from node 1 for a while, and prints where it is at the end. Arguments: the hint, its number, and
 * how often it reads (40 times unless told). */
#include <nearside.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_on.h"

#define PAGE 4096UL
#define PAGES 4096
#define NODES 4

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    int rounds = count > 3 ? atoi(arguments[3]) : 40;
    run_on("0");
    char *memory = ns_alloc(PAGES * PAGE, NS_DEFAULT, NULL, &error);
    check(memory == NULL ? -1 : 0);
    memset(memory, 1, PAGES * PAGE);
    ns_hint *hint = NULL;
    if (atoi(arguments[1]) > 0)
        check(ns_hint_new(atoi(arguments[1]), atoi(arguments[2]), &hint, &error));
    run_on("1");
    long sum = 0;
    for (int round = 0; round < rounds; round++)
        for (unsigned long at = 0; at < PAGES * PAGE; at += 64)
            sum += memory[at];
    uint64_t by_node[NODES];
    check(ns_where(memory, PAGES * PAGE, by_node, NODES, NULL, &error));
    int most = 0;
    for (int node = 0; node < NODES; node++)
        if (by_node[node] > by_node[most])
            most = node;
    printf("most of it is on node %d, %s\n", most, by_node[most] == PAGES ? "all" : "not all");
    ns_hint_free(hint);
    check(ns_free(memory, PAGES * PAGE, &error));
    return sum == 0;
}
