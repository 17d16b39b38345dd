/* Arenas of jemalloc (5.0 or later) whose memory has a policy of its own: on a node, or interleaved over some. In this
 * header alone: link with -lnearside and -ljemalloc. Objects of an arena are as any others of jemalloc:
 *
 *     unsigned arena;
 *     if (ns_jemalloc_arena(NS_BIND, node_1, &arena) != 0) ...
 *     double *table = mallocx(bytes, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE);
 *     dallocx(table, MALLOCX_TCACHE_NONE);
 *
 * Without MALLOCX_TCACHE_NONE, a thread's cache may return an object of another arena. */
#ifndef NEARSIDE_JEMALLOC_H
#define NEARSIDE_JEMALLOC_H

#include <errno.h>
#include <jemalloc/jemalloc.h>
#include <nearside.h>
#include <stdlib.h>

/* The hooks of an arena. jemalloc passes them to each of them, and arenas have no end: neither have these. */
struct ns_jemalloc_hooks {
    extent_hooks_t hooks; /* must be first */
    extent_hooks_t *usual;
    ns_set *nodes;
    int mode;
};

static void *ns_jemalloc_alloc(extent_hooks_t *hooks, void *address, size_t size, size_t alignment, _Bool *zero,
                               _Bool *commit, unsigned arena) {
    struct ns_jemalloc_hooks *own = (struct ns_jemalloc_hooks *)hooks;
    void *extent = own->usual->alloc(own->usual, address, size, alignment, zero, commit, arena);
    if (extent != NULL && ns_bind(extent, size, own->mode, own->nodes, 0, NULL) < 0) {
        own->usual->destroy(own->usual, extent, size, *commit, arena);
        return NULL; /* the object is refused rather than put elsewhere */
    }
    return extent;
}

/* Makes an arena whose memory has this policy: the modes and nodes of ns_bind. Returns 0, or jemalloc's error number. A
 * policy that the kernel refuses shows in the first allocation, which fails. */
static inline int ns_jemalloc_arena(int mode, const ns_set *nodes, unsigned *arena) {
    struct ns_jemalloc_hooks *own = (struct ns_jemalloc_hooks *)malloc(sizeof *own);
    if (own == NULL)
        return ENOMEM;
    size_t bytes = sizeof own->usual;
    int result = mallctl("arena.0.extent_hooks", &own->usual, &bytes, NULL, 0);
    if (result == 0) {
        own->mode = mode;
        own->nodes = nodes == NULL ? NULL : ns_set_copy(nodes);
        own->hooks = *own->usual;
        own->hooks.alloc = ns_jemalloc_alloc;
        extent_hooks_t *hooks = &own->hooks;
        bytes = sizeof *arena;
        result = mallctl("arenas.create", arena, &bytes, &hooks, sizeof hooks);
        if (result == 0)
            return 0;
        ns_set_free(own->nodes);
    }
    free(own);
    return result;
}

#endif
