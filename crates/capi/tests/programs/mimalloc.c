/* A heap of mimalloc in memory of a node; prints where its objects are. */
#include <mimalloc.h>
#include <string.h>

#include "run_on.h"

#define ARENA (256UL << 20)
#define ALIGNED (64UL << 20) /* of mimalloc's segments, in all versions */
#define OBJECTS 512
#define BYTES 8192UL
#define NODES 4

/* A heap whose objects have this policy. mimalloc does not return the memory. */
static mi_heap_t *heap_on(int mode, const char *text) {
    ns_set *nodes;
    check(ns_nodes(text, &nodes, &error));
    char *memory = ns_alloc(ARENA + ALIGNED, mode, nodes, &error);
    check(memory == NULL ? -1 : 0);
    ns_set_free(nodes);
    memory += (ALIGNED - (uintptr_t)memory % ALIGNED) % ALIGNED;
    mi_arena_id_t arena;
    if (!mi_manage_os_memory_ex(memory, ARENA, true, false, true, -1, true, &arena))
        return NULL;
    return mi_heap_new_in_arena(arena);
}

static void show(const char *name, int mode, const char *text) {
    mi_heap_t *heap = heap_on(mode, text);
    uint64_t sum[NODES] = {0}, all = 0;
    for (int round = 0; round < 20; round++) {
        char *objects[OBJECTS];
        for (int i = 0; i < OBJECTS; i++) {
            objects[i] = mi_heap_malloc(heap, BYTES + i % 7 * 64);
            memset(objects[i], 1, BYTES);
            uint64_t on[NODES];
            check(ns_where(objects[i], BYTES, on, NODES, NULL, &error));
            for (int node = 0; node < NODES; node++)
                sum[node] += on[node], all += on[node];
        }
        for (int i = 0; i < OBJECTS; i++)
            mi_free(objects[i]);
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
    return 0;
}
