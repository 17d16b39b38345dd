/* Objects of jemalloc's arenas on nodes, allocated and freed by threads of node 0; prints where their pages are. */
#include <nearside-jemalloc.h>
#include <pthread.h>
#include <string.h>

#include "run_on.h"

#define OBJECTS 512
#define BYTES 8192UL
#define NODES 4
#define OWN(arena) (MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE)

static unsigned arena;

static void *allocate(void *result) {
    char **objects = result;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < OBJECTS; i++) {
            objects[i] = mallocx(BYTES + i % 7 * 64, OWN(arena));
            memset(objects[i], 1, BYTES);
        }
        for (int i = 0; i < OBJECTS && round < 19; i++)
            dallocx(objects[i], MALLOCX_TCACHE_NONE);
    }
    return NULL;
}

static void show(const char *name, int mode, const char *text) {
    ns_set *nodes;
    check(ns_nodes(text, &nodes, &error));
    if (ns_jemalloc_arena(mode, nodes, &arena) != 0)
        exit(1);
    ns_set_free(nodes);
    static char *objects[2][OBJECTS];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, allocate, objects[i]);
    uint64_t sum[NODES] = {0}, all = 0;
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        for (int object = 0; object < OBJECTS; object++) {
            uint64_t on[NODES];
            check(ns_where(objects[i][object], BYTES, on, NODES, NULL, &error));
            for (int node = 0; node < NODES; node++)
                sum[node] += on[node], all += on[node];
            dallocx(objects[i][object], MALLOCX_TCACHE_NONE);
        }
    }
    printf("%s:", name);
    for (int node = 0; node < NODES; node++)
        printf(" %d %%", (int)((100 * sum[node] + all / 2) / all));
    printf("\n");
}

int main(void) {
    run_on("0");
    show("on node 2", NS_BIND, "2");
    show("interleaved", NS_INTERLEAVE, "0-3");
    ns_set *none = ns_set_new();
    void *object = ns_jemalloc_arena(NS_BIND, none, &arena) != 0 ? NULL : mallocx(BYTES, OWN(arena));
    printf("on no node: %s\n", object == NULL ? "refused" : "allocated");
    return 0;
}
