/* libnuma's names, on libnearside: a program that includes <numa.h> compiles with this header instead, and links with
 * -lnearside instead of -lnuma. docs/library.md lists what is here and where it differs. Errors are reported by results and
 * errno only, never printed; nothing exits the program.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef NEARSIDE_NUMA_COMPAT_H
#define NEARSIDE_NUMA_COMPAT_H

#include <errno.h>
#include <limits.h>
#include <nearside.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#elif !defined _DEFAULT_SOURCE
/* <unistd.h> hides it from programs in strict C (-std=c99). */
extern long syscall(long number, ...);
#endif

#define LIBNUMA_API_VERSION 2

struct bitmask {
    unsigned long size; /* bits */
    unsigned long *maskp;
};

/* Bits of a mask from numa_allocate_nodemask and numa_allocate_cpumask: more than any kernel's nodes (1,024) and CPUs. */
#define NS_COMPAT_NODES 1024u
#define NS_COMPAT_CPUS 8192u
#define NS_COMPAT_BITS (8 * sizeof(unsigned long))

/* The result of an ns_ call as libnuma has it: 0 or -1 and errno. */
static inline int ns_compat_result(int result) {
    if (result >= 0)
        return 0;
    errno = -result;
    return -1;
}

/* -- masks -- */

static inline struct bitmask *numa_bitmask_alloc(unsigned bits) {
    struct bitmask *mask = bits > 0 ? (struct bitmask *)malloc(sizeof *mask) : NULL;
    if (mask == NULL)
        return NULL;
    mask->size = bits;
    mask->maskp = (unsigned long *)calloc((bits + NS_COMPAT_BITS - 1) / NS_COMPAT_BITS, sizeof(unsigned long));
    if (mask->maskp != NULL)
        return mask;
    free(mask);
    return NULL;
}

static inline void numa_bitmask_free(struct bitmask *mask) {
    if (mask != NULL)
        free(mask->maskp);
    free(mask);
}

static inline int numa_bitmask_isbitset(const struct bitmask *mask, unsigned bit) {
    return bit < mask->size && (mask->maskp[bit / NS_COMPAT_BITS] >> bit % NS_COMPAT_BITS & 1);
}

static inline struct bitmask *numa_bitmask_setbit(struct bitmask *mask, unsigned bit) {
    if (bit < mask->size)
        mask->maskp[bit / NS_COMPAT_BITS] |= 1ul << bit % NS_COMPAT_BITS;
    return mask;
}

static inline struct bitmask *numa_bitmask_clearbit(struct bitmask *mask, unsigned bit) {
    if (bit < mask->size)
        mask->maskp[bit / NS_COMPAT_BITS] &= ~(1ul << bit % NS_COMPAT_BITS);
    return mask;
}

static inline struct bitmask *numa_bitmask_setall(struct bitmask *mask) {
    for (unsigned bit = 0; bit < mask->size; bit++)
        numa_bitmask_setbit(mask, bit);
    return mask;
}

static inline struct bitmask *numa_bitmask_clearall(struct bitmask *mask) {
    for (unsigned bit = 0; bit < mask->size; bit++)
        numa_bitmask_clearbit(mask, bit);
    return mask;
}

static inline unsigned numa_bitmask_nbytes(struct bitmask *mask) {
    return (unsigned)((mask->size + NS_COMPAT_BITS - 1) / NS_COMPAT_BITS * sizeof(unsigned long));
}

static inline unsigned numa_bitmask_weight(const struct bitmask *mask) {
    unsigned weight = 0;
    for (unsigned bit = 0; bit < mask->size; bit++)
        weight += (unsigned)numa_bitmask_isbitset(mask, bit);
    return weight;
}

static inline int numa_bitmask_equal(const struct bitmask *one, const struct bitmask *other) {
    for (unsigned bit = 0; bit < one->size || bit < other->size; bit++)
        if (numa_bitmask_isbitset(one, bit) != numa_bitmask_isbitset(other, bit))
            return 0;
    return 1;
}

static inline void copy_bitmask_to_bitmask(struct bitmask *from, struct bitmask *to) {
    for (unsigned bit = 0; bit < to->size; bit++)
        numa_bitmask_isbitset(from, bit) ? numa_bitmask_setbit(to, bit) : numa_bitmask_clearbit(to, bit);
}

static inline struct bitmask *numa_allocate_nodemask(void) { return numa_bitmask_alloc(NS_COMPAT_NODES); }
static inline void numa_free_nodemask(struct bitmask *mask) { numa_bitmask_free(mask); }
static inline struct bitmask *numa_allocate_cpumask(void) { return numa_bitmask_alloc(NS_COMPAT_CPUS); }
static inline void numa_free_cpumask(struct bitmask *mask) { numa_bitmask_free(mask); }

/* The set of a mask. The caller frees it. */
static inline ns_set *ns_compat_set(const struct bitmask *mask) {
    ns_set *set = ns_set_new();
    for (unsigned bit = 0; mask != NULL && bit < mask->size; bit++)
        if (numa_bitmask_isbitset(mask, bit))
            ns_set_add(set, bit, NULL);
    return set;
}

static inline ns_set *ns_compat_one(unsigned id) {
    ns_set *set = ns_set_new();
    ns_set_add(set, id, NULL);
    return set;
}

/* Fills a mask, and frees the set. */
static inline struct bitmask *ns_compat_fill(struct bitmask *mask, ns_set *set) {
    if (mask != NULL) {
        numa_bitmask_clearall(mask);
        for (long id = ns_set_next(set, -1); id >= 0; id = ns_set_next(set, id))
            numa_bitmask_setbit(mask, (unsigned)id);
    }
    ns_set_free(set);
    return mask;
}

/* Fills a new mask with what was parsed, and frees the set; NULL if that failed, or a member is beyond the mask. */
static inline struct bitmask *ns_compat_parsed(int result, struct bitmask *mask, ns_set *set) {
    size_t count = result < 0 ? 0 : ns_set_count(set);
    if (result >= 0 && ns_compat_fill(mask, set) != NULL && numa_bitmask_weight(mask) == count)
        return mask;
    numa_bitmask_free(mask);
    return NULL;
}

/* A new mask of numactl's grammar; NULL if it is none. Those without `_all` are NULL too if a member is not allowed. */
static inline struct bitmask *numa_parse_nodestring_all(const char *text) {
    ns_set *set = NULL;
    int is_empty = text != NULL && *text == 0, result = is_empty ? 0 : ns_nodes(text, &set, NULL);
    return ns_compat_parsed(result, numa_allocate_nodemask(), set);
}

static inline struct bitmask *numa_parse_cpustring_all(const char *text) {
    ns_set *set = NULL;
    int is_empty = text != NULL && *text == 0, result = is_empty ? 0 : ns_cpus(text, &set, NULL);
    return ns_compat_parsed(result, numa_allocate_cpumask(), set);
}

static inline struct bitmask *ns_compat_allowed(struct bitmask *mask, const struct bitmask *allowed) {
    int is_allowed = mask != NULL && allowed != NULL;
    for (unsigned bit = 0; is_allowed && bit < mask->size; bit++)
        is_allowed = !numa_bitmask_isbitset(mask, bit) || numa_bitmask_isbitset(allowed, bit);
    if (is_allowed)
        return mask;
    numa_bitmask_free(mask);
    return NULL;
}

static inline struct bitmask *numa_get_mems_allowed(void) { return numa_parse_nodestring_all("all"); }

/* libnuma's masks of what is allowed at the start, once in each file that includes this header. */
static inline struct bitmask *ns_compat_all_nodes(void) {
    static struct bitmask *mask;
    if (mask == NULL)
        mask = numa_get_mems_allowed();
    return mask;
}

static inline struct bitmask *ns_compat_no_nodes(void) {
    static struct bitmask *mask;
    if (mask == NULL)
        mask = numa_allocate_nodemask();
    return mask;
}

static inline struct bitmask *ns_compat_all_cpus(void) {
    static struct bitmask *mask;
    if (mask == NULL)
        mask = numa_parse_cpustring_all("all");
    return mask;
}

__attribute__((constructor)) static void ns_compat_at_start(void) {
    ns_compat_all_nodes();
    ns_compat_all_cpus();
}

#define numa_all_nodes_ptr (ns_compat_all_nodes())
#define numa_no_nodes_ptr (ns_compat_no_nodes())
#define numa_all_cpus_ptr (ns_compat_all_cpus())

static inline struct bitmask *numa_parse_nodestring(const char *text) {
    return ns_compat_allowed(numa_parse_nodestring_all(text), numa_all_nodes_ptr);
}

static inline struct bitmask *numa_parse_cpustring(const char *text) {
    return ns_compat_allowed(numa_parse_cpustring_all(text), numa_all_cpus_ptr);
}

/* -- the machine -- */

static inline int numa_available(void) { return ns_policy_get(NULL, NULL, NULL) < 0 ? -1 : 0; }

static inline int numa_max_node(void) {
    ns_set *nodes = NULL;
    long highest = 0;
    if (ns_online_nodes(&nodes, NULL) == 0)
        for (long node = ns_set_next(nodes, -1); node >= 0; node = ns_set_next(nodes, node))
            highest = node;
    ns_set_free(nodes);
    return (int)highest;
}

static inline int numa_pagesize(void) { return (int)sysconf(_SC_PAGESIZE); }

static inline long long numa_node_size64(int node, long long *free_bytes) {
    ns_facts facts;
    if (ns_compat_result(node < 0 ? -EINVAL : ns_node_facts((unsigned)node, &facts, sizeof facts, NULL)) < 0)
        return -1;
    if (free_bytes != NULL)
        *free_bytes = (long long)facts.free_bytes;
    return (long long)facts.total_bytes;
}

static inline long numa_node_size(int node, long *free_bytes) {
    long long available = 0;
    long long total = numa_node_size64(node, &available);
    if (free_bytes != NULL)
        *free_bytes = (long)available;
    return (long)total;
}

/* Nodes with memory. */
static inline int numa_num_configured_nodes(void) {
    int count = 0, highest = numa_max_node();
    for (int node = 0; node <= highest; node++)
        count += numa_node_size64(node, NULL) > 0;
    return count;
}

/* As many as a mask has bits. */
static inline int numa_num_possible_nodes(void) { return (int)NS_COMPAT_NODES; }
static inline int numa_num_possible_cpus(void) { return (int)NS_COMPAT_CPUS; }
static inline int numa_max_possible_node(void) { return (int)NS_COMPAT_NODES - 1; }

static inline int numa_num_configured_cpus(void) { return (int)sysconf(_SC_NPROCESSORS_CONF); }
static inline int numa_num_task_nodes(void) { return (int)numa_bitmask_weight(numa_all_nodes_ptr); }
static inline int numa_num_task_cpus(void) { return (int)numa_bitmask_weight(numa_all_cpus_ptr); }

/* 0 if it is not known. */
static inline int numa_distance(int from, int to) {
    int distance = from < 0 || to < 0 ? 0 : ns_distance((unsigned)from, (unsigned)to, NULL);
    return distance < 0 ? 0 : distance;
}

static inline int numa_node_to_cpus(int node, struct bitmask *mask) {
    ns_set *nodes = ns_compat_one((unsigned)node), *cpus = NULL;
    int result = node < 0 ? -EINVAL : ns_cpus_of(nodes, &cpus, NULL);
    ns_set_free(nodes);
    if (ns_compat_result(result) < 0)
        return -1;
    ns_compat_fill(mask, cpus);
    return 0;
}

/* As in libnuma, what is found is kept: the node plus one. */
static inline int numa_node_of_cpu(int cpu) {
    static short known[NS_COMPAT_CPUS];
    int found = cpu < 0 || (unsigned)cpu >= NS_COMPAT_CPUS ? -1 : __atomic_load_n(&known[cpu], __ATOMIC_RELAXED) - 1;
    if (found >= 0)
        return found;
    struct bitmask *cpus = numa_allocate_cpumask();
    int highest = numa_max_node();
    for (int node = 0; cpus != NULL && node <= highest && cpu >= 0; node++)
        if (numa_node_to_cpus(node, cpus) == 0 && numa_bitmask_isbitset(cpus, (unsigned)cpu))
            found = node;
    numa_bitmask_free(cpus);
    if (found < 0)
        errno = EINVAL;
    else
        __atomic_store_n(&known[cpu], (short)(found + 1), __ATOMIC_RELAXED);
    return found;
}

/* -- where threads run -- */

/* The system call itself: the kernel reduces the CPUs to those of the cpuset. */
static inline int numa_sched_setaffinity(pid_t pid, struct bitmask *mask) {
    return (int)syscall(SYS_sched_setaffinity, pid, numa_bitmask_nbytes(mask), mask->maskp);
}

/* Of the nodes that the thread may use memory of. */
static inline int numa_run_on_node_mask(struct bitmask *mask) {
    struct bitmask *cpus = numa_allocate_cpumask();
    ns_set *nodes = ns_compat_set(mask), *set = NULL;
    for (long node = ns_set_next(nodes, -1); node >= 0; node = ns_set_next(nodes, node))
        if (!numa_bitmask_isbitset(numa_all_nodes_ptr, (unsigned)node))
            ns_set_remove(nodes, (unsigned)node);
    int result = cpus == NULL ? -ENOMEM : ns_cpus_of(nodes, &set, NULL);
    if (ns_compat_result(result) == 0)
        result = numa_sched_setaffinity(0, ns_compat_fill(cpus, set));
    ns_set_free(nodes);
    numa_bitmask_free(cpus);
    return result < 0 ? -1 : 0;
}

/* -1: all CPUs again. */
static inline int numa_run_on_node(int node) {
    struct bitmask *cpus = numa_allocate_cpumask();
    int result = -1;
    if (cpus != NULL && node == -1)
        result = numa_sched_setaffinity(0, numa_bitmask_setall(cpus));
    else if (cpus != NULL && numa_node_to_cpus(node, cpus) == 0)
        result = numa_sched_setaffinity(0, cpus);
    numa_bitmask_free(cpus);
    return result;
}

static inline int numa_sched_getaffinity(pid_t pid, struct bitmask *mask) {
    ns_set *cpus = NULL;
    if (ns_compat_result(ns_affinity(pid, &cpus, NULL)) < 0)
        return -1;
    ns_compat_fill(mask, cpus);
    return (int)numa_bitmask_nbytes(mask);
}

/* The nodes of the CPUs that the thread may run on, of those that it may use memory of. */
static inline struct bitmask *numa_get_run_node_mask(void) {
    struct bitmask *nodes = numa_allocate_nodemask(), *own = numa_allocate_cpumask(), *cpus = numa_allocate_cpumask();
    if (nodes != NULL && own != NULL && cpus != NULL && numa_sched_getaffinity(0, own) > 0)
        for (int node = 0; node <= numa_max_node(); node++)
            if (numa_bitmask_isbitset(numa_all_nodes_ptr, (unsigned)node) && numa_node_to_cpus(node, cpus) == 0)
                for (unsigned cpu = 0; cpu < cpus->size; cpu++)
                    if (numa_bitmask_isbitset(cpus, cpu) && numa_bitmask_isbitset(own, cpu))
                        numa_bitmask_setbit(nodes, (unsigned)node);
    numa_bitmask_free(own);
    numa_bitmask_free(cpus);
    return nodes;
}

/* -- memory policies -- */

static inline int ns_compat_policy(int mode, const struct bitmask *mask) {
    ns_set *nodes = mask == NULL ? NULL : ns_compat_set(mask);
    int result = ns_policy_set(mode, nodes, NULL);
    ns_set_free(nodes);
    return ns_compat_result(result);
}

/* The nodes of the policy if it has this mode, or `otherwise`. */
static inline struct bitmask *ns_compat_nodes(int mode, const char *otherwise) {
    ns_set *nodes = NULL;
    int own = NS_DEFAULT;
    ns_policy_get(&own, &nodes, NULL);
    if ((own & ~(NS_BALANCING | NS_RELATIVE_NODES | NS_STATIC_NODES)) == mode)
        return ns_compat_fill(numa_allocate_nodemask(), nodes);
    ns_set_free(nodes);
    return otherwise == NULL ? numa_allocate_nodemask() : numa_parse_nodestring_all(otherwise);
}

static inline void numa_set_localalloc(void) { ns_compat_policy(NS_LOCAL, NULL); }
static inline void numa_set_membind(struct bitmask *mask) { ns_compat_policy(NS_BIND, mask); }
static inline struct bitmask *numa_get_membind(void) { return ns_compat_nodes(NS_BIND, "all"); }
static inline struct bitmask *numa_get_interleave_mask(void) { return ns_compat_nodes(NS_INTERLEAVE, NULL); }

static inline void numa_set_interleave_mask(struct bitmask *mask) {
    int is_empty = numa_bitmask_weight(mask) == 0;
    ns_compat_policy(is_empty ? NS_DEFAULT : NS_INTERLEAVE, is_empty ? NULL : mask);
}

static inline void numa_set_preferred(int node) {
    ns_set *nodes = node < 0 ? NULL : ns_compat_one((unsigned)node);
    ns_compat_result(ns_policy_set(node < 0 ? NS_LOCAL : NS_PREFERRED, nodes, NULL));
    ns_set_free(nodes);
}

/* The first node of the policy, whatever its mode; -1 if it has none. */
static inline int numa_preferred(void) {
    ns_set *nodes = NULL;
    ns_policy_get(NULL, &nodes, NULL);
    long first = ns_set_next(nodes, -1);
    ns_set_free(nodes);
    return (int)first;
}

static inline void numa_bind(struct bitmask *mask) {
    numa_run_on_node_mask(mask);
    numa_set_membind(mask);
}

/* -- memory -- */

/* Memory without a policy, and errno, if the policy is refused. Frees the set. */
static inline void *ns_compat_alloc(size_t bytes, int mode, ns_set *nodes) {
    ns_error *error = NULL;
    void *memory = ns_alloc(bytes, mode, nodes, &error);
    if (memory == NULL) {
        memory = mode == NS_DEFAULT ? NULL : ns_alloc(bytes, NS_DEFAULT, NULL, NULL);
        errno = ns_error_code(error);
    }
    ns_error_free(error);
    ns_set_free(nodes);
    return memory;
}

static inline void numa_police_memory(void *memory, size_t bytes) {
    for (size_t byte = 0; byte < bytes; byte += (size_t)numa_pagesize())
        ((volatile char *)memory)[byte] = ((volatile char *)memory)[byte];
}

/* With its pages touched, as libnuma does it. */
static inline void *numa_alloc(size_t bytes) {
    void *memory = ns_compat_alloc(bytes, NS_DEFAULT, NULL);
    if (memory != NULL)
        numa_police_memory(memory, bytes);
    return memory;
}

static inline void *numa_alloc_local(size_t bytes) { return ns_compat_alloc(bytes, NS_LOCAL, NULL); }

static inline void *numa_alloc_onnode(size_t bytes, int node) {
    return ns_compat_alloc(bytes, NS_BIND, ns_compat_one((unsigned)node));
}

static inline void *numa_alloc_interleaved_subset(size_t bytes, struct bitmask *mask) {
    return ns_compat_alloc(bytes, NS_INTERLEAVE, ns_compat_set(mask));
}

static inline void *numa_alloc_interleaved(size_t bytes) {
    return numa_alloc_interleaved_subset(bytes, numa_all_nodes_ptr);
}

/* The memory may move, with its pages and its policy. */
static inline void *numa_realloc(void *memory, size_t from_bytes, size_t to_bytes) {
    const unsigned long may_move = 1; /* MREMAP_MAYMOVE: libc has it only with _GNU_SOURCE */
    long moved = syscall(SYS_mremap, memory, from_bytes, to_bytes, may_move);
    return moved == -1 ? NULL : (void *)moved;
}

static inline void numa_free(void *memory, size_t bytes) { ns_compat_result(ns_free(memory, bytes, NULL)); }

static inline void ns_compat_bind(void *memory, size_t bytes, int mode, ns_set *nodes) {
    ns_compat_result(ns_bind(memory, bytes, mode, nodes, 0, NULL));
    ns_set_free(nodes);
}

static inline void numa_tonode_memory(void *memory, size_t bytes, int node) {
    ns_compat_bind(memory, bytes, NS_BIND, ns_compat_one((unsigned)node));
}

static inline void numa_tonodemask_memory(void *memory, size_t bytes, struct bitmask *mask) {
    ns_compat_bind(memory, bytes, NS_BIND, ns_compat_set(mask));
}

static inline void numa_interleave_memory(void *memory, size_t bytes, struct bitmask *mask) {
    ns_compat_bind(memory, bytes, NS_INTERLEAVE, ns_compat_set(mask));
}

static inline void numa_setlocal_memory(void *memory, size_t bytes) { ns_compat_bind(memory, bytes, NS_LOCAL, NULL); }

/* The number of pages that stayed, or -1. */
static inline int numa_migrate_pages(int pid, struct bitmask *from, struct bitmask *to) {
    ns_set *sources = ns_compat_set(from), *targets = ns_compat_set(to);
    uint64_t stayed = 0;
    int result = ns_migrate_process(pid, sources, targets, &stayed, NULL);
    ns_set_free(sources);
    ns_set_free(targets);
    return ns_compat_result(result) < 0 ? -1 : stayed > INT_MAX ? INT_MAX : (int)stayed;
}

/* The system call itself: it has one status for each page, which a tally has not. */
static inline int numa_move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status, int flags) {
    return (int)syscall(SYS_move_pages, pid, count, pages, nodes, status, flags);
}

#ifdef __cplusplus
}
#endif

#endif
