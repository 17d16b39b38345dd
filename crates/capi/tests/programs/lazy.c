/* Moves memory when it is touched. Argument 1: by the program only, without rights. */
#include <errno.h>
#include <nearside.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run_on.h"

#define PAGE 4096UL
#define PAGES 256
#define NODES 4

static char *memory;

/* The second quarter of the pages, from node 2. */
static void *reads(void *sum) {
    run_on("2");
    for (int page = PAGES / 4; page < PAGES / 2; page++)
        *(long *)sum += memory[page * PAGE];
    return NULL;
}

int main(int count, char **arguments) {
    unsigned flags = count > 1 && arguments[1][0] == '1' ? NS_PROGRAM_ONLY : 0;
    ns_lazy_move *move;
    ns_set *zero;
    check(ns_nodes("0", &zero, &error));
    memory = ns_alloc(PAGES * PAGE, NS_BIND, zero, &error);
    check(memory == NULL ? -1 : 0);
    for (int page = 0; page < PAGES; page++)
        memory[page * PAGE] = (char)page;

    if (flags == NS_PROGRAM_ONLY && ns_move_lazily(memory, PAGES * PAGE, 0, &move, &error) < 0)
        printf("error %d: %s\n", ns_error_code(error), ns_error_text(error));
    else if (flags != NS_PROGRAM_ONLY) {
        /* The node of the thread that a system call runs in. */
        int ends[2];
        char page[PAGE] = {0};
        check(ns_move_lazily(memory, PAGES * PAGE, 0, &move, &error));
        check(pipe(ends));
        if (write(ends[1], memory + 5 * PAGE, PAGE) == PAGE && read(ends[0], page, PAGE) == PAGE && page[0] == 5)
            printf("a pipe got a page\n");
        check(ns_lazy_move_end(move, NULL, &error));
        check(ns_bind(memory, PAGES * PAGE, NS_BIND, zero, NS_MOVE, &error));
    }
    uint64_t by_node[NODES];
    check(ns_where(memory, PAGES * PAGE, by_node, NODES, NULL, &error));
    printf("%d pages on node 0\n", (int)by_node[0]);

    check(ns_move_lazily(memory, PAGES * PAGE, flags, &move, &error));
    long sum = 0, read_by_other = 0;
    for (int page = 0; page < PAGES / 4; page++)
        sum += memory[page * PAGE];
    pthread_t thread;
    pthread_create(&thread, NULL, reads, &read_by_other);
    pthread_join(thread, NULL);
    ns_tally tally;
    check(ns_lazy_move_end(move, &tally, &error));
    printf("touched from nodes 1 and 2: %d moved, %d there, %d stayed\n", (int)tally.moved_pages,
           (int)tally.there_pages, (int)tally.stayed_pages);
    check(ns_where(memory, PAGES * PAGE, by_node, NODES, NULL, &error));
    for (int node = 0; node < NODES; node++)
        if (by_node[node] > 0)
            printf("node %d: %d\n", node, (int)by_node[node]);
    int same = sum == 64 * 63 / 2 && read_by_other == (64 + 127) * 64 / 2;
    for (int page = 0; page < PAGES; page++)
        same = same && memory[page * PAGE] == (char)page;
    printf("%s\n", same ? "contents as before" : "contents changed");
    check(ns_free(memory, PAGES * PAGE, &error));
    ns_set_free(zero), ns_error_free(error);
    return 0;
}
