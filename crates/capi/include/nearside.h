/* NUMA for programs. libnearside(3) is the manual; link with -lnearside (pkg-config nearside).
 *
 * Two parts: calls of libnearside (ns_), and functions for programs with custom allocators, which need no library.
 *
 * Rules of all ns_ calls:
 * - An int result is 0 or more, or a negative number of errno.h. If `error` is not NULL, *error is set: to NULL, or to an
 *   error whose text says what was tried, what the kernel answered, why, and what helps.
 * - A call that fails has changed nothing, unless its comment says otherwise.
 * - Handles (ns_set and others) belong to the caller, who frees them. NULL is allowed where a comment says so, and in
 *   every _free. A result pointer may be NULL if the caller does not want the result, but for handles that the call
 *   makes.
 * - No global state but the heap's, no output, no exit, unless there is no memory for some bytes: that ends the program.
 *   Handles that are only read (const) may be shared by threads.
 * - Not for signal handlers. After fork in a program with threads, only ns_replica_read and the ns_set calls are safe.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef NEARSIDE_H
#define NEARSIDE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the interface of this header: major times 1,000 plus minor. */
#define NS_VERSION 1003
/* That of the library that is loaded. */
unsigned ns_version(void);

/* -- errors -- */

typedef struct ns_error ns_error;
/* The number of errno.h, positive; 0 for NULL. */
int ns_error_code(const ns_error *error);
/* Valid until the error is freed; "" for NULL. */
const char *ns_error_text(const ns_error *error);
void ns_error_free(ns_error *error);

/* -- sets of nodes or CPUs, with numbers up to 1,048,576 -- */

typedef struct ns_set ns_set;
ns_set *ns_set_new(void);
ns_set *ns_set_copy(const ns_set *set); /* an empty one for NULL */
void ns_set_free(ns_set *set);
int ns_set_add(ns_set *set, unsigned id, ns_error **error);
int ns_set_remove(ns_set *set, unsigned id);          /* 1 if it was there */
int ns_set_has(const ns_set *set, unsigned id);       /* 1 if it is there */
size_t ns_set_count(const ns_set *set);
long ns_set_next(const ns_set *set, long after);      /* the lowest number above `after`, or -1; begin with -1 */
int ns_set_equal(const ns_set *one, const ns_set *other);
/* Writes "0-3,5", cut to the buffer and ended with 0, and returns the whole length without the 0, as snprintf. */
size_t ns_set_text(const ns_set *set, char *buffer, size_t bytes);

/* numactl's grammar: "0-3,5", "all", "!0", "+0", "netdev:eth0" (nodes). "all", "!" and "+" refer to the nodes with memory
 * that the cpuset allows, or to the CPUs that the calling thread may run on. Listed numbers are taken as they are: the call
 * that uses the set refuses it as a whole if one does not exist. */
int ns_nodes(const char *text, ns_set **set, ns_error **error);
int ns_cpus(const char *text, ns_set **set, ns_error **error);
int ns_cpus_of(const ns_set *nodes, ns_set **cpus, ns_error **error);
/* All nodes, also those without memory, without CPUs, or outside the cpuset. */
int ns_online_nodes(ns_set **nodes, ns_error **error);

/* -- where am I, and what is the machine like -- */

int ns_here(int *cpu, int *node, ns_error **error);
/* The firmware's distance, 10 for local memory. Firmware often errs: nearside measure finds what is true. */
int ns_distance(unsigned from, unsigned to, ns_error **error);

typedef struct ns_facts {
    uint64_t total_bytes;
    uint64_t free_bytes;
    uint64_t cpus; /* how many */
} ns_facts;
/* `bytes` is sizeof(ns_facts): later versions may add fields at the end. */
int ns_node_facts(unsigned node, ns_facts *facts, size_t bytes, ns_error **error);
/* The pool of huge pages of one size. ENODATA: there is none of this size. */
int ns_huge_pages(unsigned node, uint64_t page_bytes, uint64_t *pages, uint64_t *free_pages, ns_error **error);

/* Latencies of a machine file, as nearside measure --output writes it. */
typedef struct ns_latencies ns_latencies;
int ns_latencies_load(const char *path, ns_latencies **latencies, ns_error **error);
int ns_latency_ns(const ns_latencies *latencies, unsigned from, unsigned to, double *latency_ns, ns_error **error);
void ns_latencies_free(ns_latencies *latencies);

/* -- where threads run; new threads inherit from the thread that starts them -- */

int ns_run_on(const ns_set *cpus, ns_error **error);        /* the calling thread */
int ns_run_on_nodes(const ns_set *nodes, ns_error **error); /* the calling thread */
int ns_thread_run_on(int tid, const ns_set *cpus, ns_error **error);
int ns_affinity(int tid, ns_set **cpus, ns_error **error); /* 0: the calling thread */

#define NS_INTERSECT 1 /* each thread keeps the CPUs that are in both sets; an empty result is refused */
#define NS_OVERWRITE 2
/* Every thread of a process (0: this one), also those that start meanwhile. Returns their number. If the kernel refuses
 * one, those before it are changed. */
int ns_process_run_on(int pid, const ns_set *cpus, int how, ns_error **error);

/* -- memory policies: where pages go that are touched first -- */

/* The kernel's numbers. `nodes` is NULL for NS_DEFAULT and NS_LOCAL. */
#define NS_DEFAULT 0
#define NS_PREFERRED 1           /* one node, then others */
#define NS_BIND 2                /* these nodes only */
#define NS_INTERLEAVE 3
#define NS_LOCAL 4               /* the node of the CPU that touches */
#define NS_PREFERRED_MANY 5      /* Linux 5.15 */
#define NS_WEIGHTED_INTERLEAVE 6 /* Linux 6.9; the weights are the system's */
/* Or'ed to a mode: */
#define NS_BALANCING (1 << 13)      /* NUMA balancing may move the pages */
#define NS_RELATIVE_NODES (1 << 14) /* nodes are relative to the cpuset */
#define NS_STATIC_NODES (1 << 15)   /* nodes are not renumbered with the cpuset */

int ns_policy_set(int mode, const ns_set *nodes, ns_error **error); /* the calling thread */
int ns_policy_get(int *mode, ns_set **nodes, ns_error **error);     /* the calling thread */
int ns_policy_at(const void *address, int *mode, ns_set **nodes, ns_error **error);

#define NS_STRICT 1   /* EIO if a page is, and stays, on another node */
#define NS_MOVE 2     /* pages that are there already move */
#define NS_MOVE_ALL 4 /* also those that other processes map; needs CAP_SYS_NICE */
/* The whole pages that hold these bytes. With NS_STRICT or NS_MOVE, the policy is set even if pages stay. */
int ns_bind(void *address, size_t bytes, int mode, const ns_set *nodes, unsigned flags, ns_error **error);
/* The node from which the kernel searches for the nearest node of NS_BIND or NS_PREFERRED_MANY. Linux 5.17. */
int ns_home(void *address, size_t bytes, unsigned node, ns_error **error);

/* -- hints to the agent -- */

/* Tells `nearside agent` and `nearside place`, where they may place this process. Holds until it is freed, the process ends
 * or it executes another program; forked processes give it too. Without an agent it has no effect. */
#define NS_HINT_LEAVE_ALONE 1 /* threads and memory are where they belong */
#define NS_HINT_SHORT_LIVED 2 /* it ends soon: moving anything would not pay */
#define NS_HINT_HOME 3        /* threads and memory belong on the node `number` */
#define NS_HINT_PHASE 4       /* memory is used in another way from now on; `number` tells phases apart */
typedef struct ns_hint ns_hint;
int ns_hint_new(unsigned what, unsigned long number, ns_hint **hint, ns_error **error);
void ns_hint_free(ns_hint *hint);

/* -- grants of the agent: cores, caches, memory and bandwidth of this program's own -- */

/* The twelve calls of the isolation study (Razavi, 2011), by their numbers, of `nearside agent`, which must give this user a
 * quota; nearside-reserve(1). EBUSY: others are in the way, which the text names; EINVAL: no machine, or not this one, can
 * grant it; EPERM: the agent refused; ENOENT or ECONNREFUSED: there is no such agent. */
typedef struct ns_grant ns_grant;
#define NS_GRANT_CORE 1       /* no other grant is on its cores, and none uses the links to its memory */
#define NS_GRANT_CACHE 2      /* its last-level cache, with all cores that share it */
#define NS_GRANT_CONTROLLER 4 /* others slow it by no more than 5 %, or most_slowdown_percent */
/* Preferences, by which cores and memory are chosen: */
#define NS_GRANT_ANY 0
#define NS_GRANT_LATENCY 1
#define NS_GRANT_READS 2
#define NS_GRANT_WRITES 3
/* In place of a node: */
#define NS_ANY_NODE (-1)
#define NS_CORES_NODE (-2)
/* 1, 2, 3: cores and memory. `more` is NULL, or JSON with keys of plan files: name, cores, bytes, bandwidth,
 * write_bandwidth, most_slowdown_percent, strict, lease_s. The process goes on where it is until it enters the grant. */
int ns_grant_new(unsigned flags, unsigned preference, int node, const char *more, ns_grant **grant, ns_error **error);
/* 4, 5: cores on the exclusive cache of `holder`, as a grant of their own. `flags`: 0 or NS_GRANT_CONTROLLER. `node` is not
 * NS_CORES_NODE. */
int ns_grant_on_cache(const ns_grant *holder, unsigned flags, unsigned preference, int node, const char *more,
                      ns_grant **grant, ns_error **error);
/* 6, 7: more memory for the same cores. `flags`: NS_GRANT_CORE (the links to it) and NS_GRANT_CONTROLLER. */
int ns_grant_add_memory(const ns_grant *grant, unsigned flags, unsigned preference, int node, ns_error **error);
/* 8, 12: its memory controllers are guarded from now on (1), or no longer (0). */
int ns_grant_guard(const ns_grant *grant, int guarded, ns_error **error);
/* 9, 10, 11: gives cores, memory or both back. Its programs go on among the others. */
#define NS_GRANT_CORES 1
#define NS_GRANT_MEMORY 2
int ns_grant_release(const ns_grant *grant, unsigned what, ns_error **error);
/* A process (0: this one) gets its CPUs, and the process's memory moves to its nodes. */
int ns_grant_enter(const ns_grant *grant, int pid, ns_error **error);
/* The grant of the program that started this one, as nearside reserve run passes it on. ENODATA: there is none. */
int ns_grant_inherited(ns_grant **grant, ns_error **error);
unsigned ns_grant_id(const ns_grant *grant);
/* A descriptor, closed on exec: a process with a copy of it holds the grant, and may do all of the above. */
int ns_grant_handle(const ns_grant *grant);
/* What was decided when it was made, in words. */
const char *ns_grant_text(const ns_grant *grant);
/* Closes this copy of the handle. With the last one the grant ends, and its programs go on among the others. */
void ns_grant_free(ns_grant *grant);

/* -- memory on nodes -- */

/* Whole pages of zeros with a policy of their own, allocated when they are touched; NULL on failure. */
void *ns_alloc(size_t bytes, int mode, const ns_set *nodes, ns_error **error);
/* Memory of ns_alloc only, with the size that was asked for; NULL is allowed. */
int ns_free(void *memory, size_t bytes, ns_error **error);

typedef struct ns_tally { /* a huge page is one page */
    uint64_t moved_pages, moved_bytes;
    uint64_t there_pages;     /* were on the right node */
    uint64_t elsewhere_pages; /* on nodes that are not in `from` */
    uint64_t stayed_pages, stayed_bytes; /* could not be moved: shared, pinned, or the node is full */
} ns_tally;
/* Moves present pages of a process (0: this one): of the first node of `from` to the first of `to`, and so on; with NULL,
 * pages that are on no node of `to` are spread over those. Pages that stay are no error. `flags`: 0 or NS_MOVE_ALL. */
int ns_migrate(int pid, void *address, size_t bytes, const ns_set *from, const ns_set *to, unsigned flags, ns_tally *tally,
               ns_error **error);
/* From now on, each page moves when it is touched next, to the node of the thread that touches it; each at most once. Give
 * it memory of ns_alloc, with the size that was asked for. Until ns_lazy_move_end, which must come before ns_free, it can
 * be used as always, but not discarded or mapped anew, and forked processes do not have it. Its own policy is gone.
 * `flags`: 0 needs CAP_SYS_PTRACE, /dev/userfaultfd or vm.unprivileged_userfaultfd = 1. NS_PROGRAM_ONLY needs nothing, but
 * a system call that gets a page which the program has not touched yet fails with EFAULT. Linux 5.7; 5.11. */
#define NS_PROGRAM_ONLY 1
typedef struct ns_lazy_move ns_lazy_move;
int ns_move_lazily(void *memory, size_t bytes, unsigned flags, ns_lazy_move **move, ns_error **error);
/* Pages that were not touched stay where they are (`stayed_pages`), as do those for which the node had no room. */
int ns_lazy_move_end(ns_lazy_move *move, ns_tally *tally, ns_error **error);
/* All pages of a process, in one call of the kernel. */
int ns_migrate_process(int pid, const ns_set *from, const ns_set *to, uint64_t *stayed_pages, ns_error **error);

/* Counts the pages of 4 KiB of a range by node, for nodes below `nodes`, without touching any. `absent_pages` are nowhere:
 * never written, swapped out, or not mapped. */
int ns_where(const void *address, size_t bytes, uint64_t *pages_by_node, size_t nodes, uint64_t *absent_pages,
             ns_error **error);

/* -- objects of any size on nodes: nearside-memory-resource.hpp has them as a std::pmr::memory_resource -- */

#define NS_HEAP_LOCAL (-1)       /* the node of the calling thread */
#define NS_HEAP_INTERLEAVED (-2) /* all nodes that the thread may use, page by page; above 4 MiB also by huge pages */
/* An object on a node, or as above. A node must exist; if it is full, or not allowed, the object comes from another one, the
 * nearest with room. Nodes are ignored if the calling thread has a memory policy of its own. `alignment` is a power
 * of two. NULL on failure. Safe after fork. */
void *ns_heap_alloc(size_t bytes, size_t alignment, int place, ns_error **error);
/* An object of ns_heap_alloc only, in any thread. Ends the program with a sentence if it is none, or was freed before. */
void ns_heap_free(void *object);

/* -- names of ranges -- */

/* Gives a range, of any part of the program's memory, a name of at most 190 bytes, until it is freed, the process ends or
 * it executes another program: nearside record, report and top show its accesses under this name, and nearside pages,
 * migrate and place find its whole pages by it. Each name takes one mapping of the process, so it is for some large
 * ranges; NEARSIDE_NAME_REGION below needs no mapping and no library, but counts for recorders only. */
typedef struct ns_region ns_region;
int ns_region_new(const void *address, size_t bytes, const char *name, ns_region **region, ns_error **error);
void ns_region_free(ns_region *region);

/* -- what threads to come begin with -- */

typedef struct ns_template ns_template;
ns_template *ns_template_new(void); /* changes nothing until it is given CPUs or a policy */
void ns_template_free(ns_template *template_);
int ns_template_cpus(ns_template *template_, const ns_set *cpus, ns_error **error); /* NULL: inherited */
int ns_template_policy(ns_template *template_, int mode, const ns_set *nodes, ns_error **error);
/* now, this thread */
int ns_template_enter(const ns_template *template_, ns_error **error);
/* now, all threads of a process (0: this one), NS_INTERSECT or NS_OVERWRITE. Returns their number. Linux lets only a thread
 * set its own memory policy: a template with one is refused. */
int ns_template_apply(const ns_template *template_, int pid, int how, ns_error **error);
/* future: pthread_create of a thread that has the template before `function` begins. If it is refused, `function` is never
 * called and there is no thread. */
int ns_template_start(const ns_template *template_, pthread_t *thread, const pthread_attr_t *attributes,
                      void *(*function)(void *), void *argument, ns_error **error);

/* -- read-mostly data with a copy on each node -- */

typedef struct ns_replica ns_replica;
int ns_replica_new(const void *data, size_t bytes, const ns_set *nodes, ns_replica **replica, ns_error **error);
/* The copy of the node that the calling thread runs on, or the nearest one: without a call where the kernel (6.3) and the C
 * library (2.35) keep the node in memory. Valid until the replica is freed; NULL for NULL. */
const void *ns_replica_read(const ns_replica *replica);
/* Each copy. The caller keeps readers away meanwhile, with a lock of its own. */
int ns_replica_write(ns_replica *replica, size_t offset, const void *data, size_t bytes, ns_error **error);
void ns_replica_free(ns_replica *replica);

/* -- custom allocators and names: report objects, which malloc does not see, to nearside record --
 *
 * No library needs to be linked: if the program is not being recorded, each call only tests an address. */

/* An object begins. Call this once its memory has no other owner. Its site is the function that calls this. It may be
 * inside of another object, such as a block of malloc: that one has these bytes again when this one has ended, and ends
 * this one with itself. */
__attribute__((weak)) extern void nearside_allocated(const void *address, size_t bytes);

/* The object ends. Call this before its memory can be reused. */
__attribute__((weak)) extern void nearside_freed(const void *address);

/* Names a range; without a name, ends the name of the range that begins there. */
__attribute__((weak)) extern void nearside_name_region(const void *address, size_t bytes, const char *name);

#ifdef __cplusplus
}
#endif

#define NEARSIDE_ALLOCATED(address, bytes) (nearside_allocated ? nearside_allocated((address), (bytes)) : (void)0)
#define NEARSIDE_FREED(address) (nearside_freed ? nearside_freed(address) : (void)0)
#define NEARSIDE_NAME_REGION(address, bytes, name) \
    (nearside_name_region ? nearside_name_region((address), (bytes), (name)) : (void)0)

#endif
