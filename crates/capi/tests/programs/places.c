/* Places memory in several ways, and prints where it is. */
#include <nearside.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGES 400
#define BYTES (PAGES * 4096UL)
#define NODES 8

static ns_error *error;

static void check(int result) {
    if (result < 0) {
        fprintf(stderr, "%s\n", ns_error_text(error));
        exit(1);
    }
}

static void print_where(const char *what, const void *memory) {
    uint64_t pages[NODES], absent;
    check(ns_where(memory, BYTES, pages, NODES, &absent, &error));
    printf("%-20s", what);
    for (int node = 0; node < NODES; node++)
        if (pages[node] > 0)
            printf("  node %d: %3lu", node, (unsigned long)pages[node]);
    printf("%s\n", absent > 0 ? "  and some nowhere" : "");
}

static void place(const char *what, int mode, const ns_set *nodes) {
    char *memory = ns_alloc(BYTES, mode, nodes, &error);
    check(memory == NULL ? -1 : 0);
    memset(memory, 1, BYTES);
    print_where(what, memory);
    check(ns_free(memory, BYTES, &error));
}

static void *runs(void *argument) {
    (void)argument;
    ns_set *cpus = NULL;
    char text[64];
    check(ns_affinity(0, &cpus, &error));
    ns_set_text(cpus, text, sizeof text);
    printf("%-20s  CPUs %s\n", "thread by template", text);
    ns_set_free(cpus);
    place("  and its memory", NS_DEFAULT, NULL);
    return NULL;
}

int main(void) {
    ns_set *one, *two, *all, *cpus;
    check(ns_nodes("1", &one, &error));
    check(ns_nodes("2", &two, &error));
    check(ns_nodes("all", &all, &error));
    check(ns_cpus_of(two, &cpus, &error));

    int cpu, node;
    check(ns_run_on(cpus, &error));
    check(ns_here(&cpu, &node, &error));
    printf("runs on node %d, at distance %d from node 1\n", node, ns_distance(node, 1, &error));

    place("local", NS_LOCAL, NULL);
    place("on node 1", NS_BIND, one);
    place("interleaved", NS_INTERLEAVE, all);

    char *memory = ns_alloc(BYTES, NS_BIND, one, &error);
    check(memory == NULL ? -1 : 0);
    memset(memory, 1, BYTES / 2);
    print_where("half touched", memory);
    ns_tally tally;
    check(ns_migrate(0, memory, BYTES, one, two, 0, &tally, &error));
    print_where("moved", memory);
    printf("%lu pages moved, %lu stayed\n", (unsigned long)tally.moved_pages, (unsigned long)tally.stayed_pages);
    check(ns_free(memory, BYTES, &error));

    ns_template *threads = ns_template_new();
    pthread_t thread;
    ns_set *first = NULL;
    check(ns_cpus("0", &first, &error));
    check(ns_template_cpus(threads, first, &error));
    check(ns_template_policy(threads, NS_BIND, one, &error));
    check(ns_template_start(threads, &thread, NULL, runs, NULL, &error));
    pthread_join(thread, NULL);

    ns_replica *replica;
    check(ns_replica_new("same", 5, all, &replica, &error));
    const char *here = ns_replica_read(replica);
    uint64_t pages[NODES];
    check(ns_where(here, 1, pages, NODES, NULL, &error));
    printf("the replica that node %d reads is on it: %s, \"%s\"\n", node, pages[node] == 1 ? "yes" : "no", here);
    ns_replica_free(replica);

    ns_set *wrong;
    check(ns_nodes("0,7", &wrong, &error));
    if (ns_policy_set(NS_BIND, wrong, &error) < 0)
        printf("error %d: %s\n", ns_error_code(error), ns_error_text(error));
    ns_error_free(error);
    ns_set_free(wrong);
    ns_template_free(threads);
    ns_set_free(one), ns_set_free(two), ns_set_free(all), ns_set_free(cpus), ns_set_free(first);
    return 0;
}
