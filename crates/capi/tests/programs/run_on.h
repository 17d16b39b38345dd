/* What programs that run on one node after another have in common. */
#include <nearside.h>
#include <stdio.h>
#include <stdlib.h>

static ns_error *error;

static void check(int result) {
    if (result < 0) {
        fprintf(stderr, "%s\n", ns_error_text(error));
        exit(1);
    }
}

static void run_on(const char *node) {
    ns_set *nodes, *cpus;
    check(ns_nodes(node, &nodes, &error));
    check(ns_cpus_of(nodes, &cpus, &error));
    check(ns_run_on(cpus, &error));
    ns_set_free(nodes), ns_set_free(cpus);
}
