/* Calls libnuma's functions, or those of nearside-numa-compat.h, and prints their results and what the kernel says of their
 * effects. Both must print the same. */
#define _GNU_SOURCE
#ifdef WITH_LIBNUMA
#include <numa.h>
#else
#include <nearside-numa-compat.h>
#endif
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES (48 * 4096UL) /* as many pages on each of 2, 3, 4 or 8 nodes */

static void print_mask(const char *what, const struct bitmask *mask) {
    printf("%s", what);
    if (mask == NULL) {
        printf(" none\n");
        return;
    }
    for (unsigned bit = 0; bit < mask->size; bit++)
        if (numa_bitmask_isbitset(mask, bit))
            printf(" %u", bit);
    printf("\n");
}

/* The policy of the thread, or of an address. */
static void print_policy(const char *what, void *address) {
    int mode = -1;
    unsigned long nodes[16] = {0};
    syscall(SYS_get_mempolicy, &mode, nodes, 1024UL, address, address != NULL ? 2UL : 0UL);
    printf("%s: mode %d, nodes %lx\n", what, mode, nodes[0]);
}

static void print_cpus(const char *what, int result) {
    cpu_set_t cpus;
    sched_getaffinity(0, sizeof cpus, &cpus);
    printf("%s: %d, CPUs", what, result);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cpus))
            printf(" %d", cpu);
    printf("\n");
}

/* The nodes of the pages, touched. */
static void print_pages(const char *what, char *memory) {
    int counts[64] = {0};
    printf("%s:", what);
    if (memory == NULL) {
        printf(" none\n");
        return;
    }
    memset(memory, 1, BYTES);
    for (unsigned long page = 0; page < BYTES; page += 4096) {
        int status = -1;
        void *address = memory + page;
        syscall(SYS_move_pages, 0, 1UL, &address, NULL, &status, 0);
        if (status >= 0 && status < 64)
            counts[status]++;
    }
    for (int node = 0; node < 64; node++)
        if (counts[node] > 0)
            printf(" node %d %d", node, counts[node]);
    print_policy("", memory);
}

static void machine(void) {
    int last = numa_max_node();
    struct bitmask *cpus = numa_allocate_cpumask();
    printf("max %d, configured %d nodes %d CPUs, task %d nodes %d CPUs, page %d\n", last, numa_num_configured_nodes(),
           numa_num_configured_cpus(), numa_num_task_nodes(), numa_num_task_cpus(), numa_pagesize());
    for (int node = 0; node <= last; node++) {
        long long available = -1;
        printf("node %d: %lld bytes, distances", node, numa_node_size64(node, &available));
        for (int to = 0; to <= last; to++)
            printf(" %d", numa_distance(node, to));
        printf(", free %s, ", available > 0 ? "some" : "none");
        numa_node_to_cpus(node, cpus);
        print_mask("CPUs", cpus);
    }
    printf("distance of none %d, size of none %lld\n", numa_distance(0, 999), numa_node_size64(999, NULL));
    for (int cpu = 0; cpu < 4; cpu++)
        printf("CPU %d is of node %d\n", cpu, numa_node_of_cpu(cpu));
    printf("CPU 100000 is of node %d\n", numa_node_of_cpu(100000));
    print_mask("all nodes", numa_all_nodes_ptr);
    print_mask("no nodes", numa_no_nodes_ptr);
    print_mask("all CPUs", numa_all_cpus_ptr);
    print_mask("allowed", numa_get_mems_allowed());
    numa_free_cpumask(cpus);
}

static void masks(void) {
    struct bitmask *one = numa_bitmask_alloc(70), *other = numa_bitmask_alloc(200);
    numa_bitmask_setbit(numa_bitmask_setbit(one, 3), 69);
    numa_bitmask_setbit(one, 70);
    copy_bitmask_to_bitmask(one, other);
    print_mask("copied", other);
    printf("equal %d, weight %u, bytes %u\n", numa_bitmask_equal(one, other), numa_bitmask_weight(one), numa_bitmask_nbytes(one));
    numa_bitmask_setbit(other, 199);
    printf("equal %d, set %d %d\n", numa_bitmask_equal(one, other), numa_bitmask_isbitset(one, 69), numa_bitmask_isbitset(one, 5));
    numa_bitmask_clearbit(one, 3);
    print_mask("cleared", one);
    printf("all %u, none %u\n", numa_bitmask_weight(numa_bitmask_setall(one)), numa_bitmask_weight(numa_bitmask_clearall(one)));
    numa_bitmask_free(one);
    numa_bitmask_free(other);
    print_mask("parsed 0-1", numa_parse_nodestring("0-1"));
    print_mask("parsed all", numa_parse_nodestring("all"));
    print_mask("parsed !0", numa_parse_nodestring("!0"));
    print_mask("parsed +1", numa_parse_nodestring("+1"));
    print_mask("parsed CPUs 1-2", numa_parse_cpustring("1-2"));
    print_mask("parsed nothing", numa_parse_nodestring(""));
    print_mask("parsed 0,5000", numa_parse_nodestring("0,5000"));
    print_mask("parsed CPUs 0,9000", numa_parse_cpustring("0,9000"));
}

static void threads(struct bitmask *last) {
    print_cpus("run on node 1", numa_run_on_node(1));
    print_mask("run node mask", numa_get_run_node_mask());
    print_cpus("run on none", numa_run_on_node(999));
    print_cpus("run on all", numa_run_on_node(-1));
    print_cpus("run on the last", numa_run_on_node_mask(last));
    print_cpus("run on all", numa_run_on_node_mask(numa_all_nodes_ptr));
    struct bitmask *cpus = numa_allocate_cpumask();
    numa_bitmask_setbit(cpus, 1);
    print_cpus("affinity", numa_sched_setaffinity(0, cpus));
    numa_bitmask_clearall(cpus);
    printf("read %d, ", numa_sched_getaffinity(0, cpus) > 0);
    print_mask("affinity", cpus);
    print_cpus("run on node 0", numa_run_on_node(0));
    numa_free_cpumask(cpus);
}

static void policies(struct bitmask *last) {
    numa_set_membind(last);
    print_policy("membind", NULL);
    print_mask("membind", numa_get_membind());
    numa_set_interleave_mask(numa_all_nodes_ptr);
    print_policy("interleave", NULL);
    print_mask("interleave", numa_get_interleave_mask());
    print_mask("membind", numa_get_membind());
    numa_set_preferred(1);
    print_policy("preferred", NULL);
    printf("preferred %d\n", numa_preferred());
    numa_set_localalloc();
    print_policy("local", NULL);
    printf("preferred %d\n", numa_preferred());
    print_mask("interleave", numa_get_interleave_mask());
    numa_set_interleave_mask(numa_no_nodes_ptr);
    print_policy("no interleave", NULL);
    numa_bind(last);
    print_policy("bind", NULL);
    print_cpus("bind", 0);
    numa_bind(numa_all_nodes_ptr);
    numa_set_localalloc();
    numa_run_on_node(0);
}

static void memory(struct bitmask *last) {
    char *plain = numa_alloc(BYTES), *local = numa_alloc_local(BYTES), *one = numa_alloc_onnode(BYTES, 1);
    char *all = numa_alloc_interleaved(BYTES), *some = numa_alloc_interleaved_subset(BYTES, last);
    print_pages("alloc", plain);
    print_pages("local", local);
    print_pages("on node 1", one);
    print_pages("interleaved", all);
    print_pages("subset", some);
    numa_free(local, BYTES);
    some = numa_realloc(some, BYTES, 2 * BYTES);
    print_pages("longer", some);
    print_policy("its end", some + BYTES);
    printf("freed: %ld\n", syscall(SYS_madvise, local, BYTES, 0));
    char *memory[4];
    for (int i = 0; i < 4; i++)
        memory[i] = numa_alloc(BYTES);
    numa_tonode_memory(memory[0], BYTES, 1);
    print_pages("to node", memory[0]);
    numa_interleave_memory(memory[1], BYTES, numa_all_nodes_ptr);
    print_pages("interleave", memory[1]);
    numa_tonodemask_memory(memory[2], BYTES, last);
    print_pages("to mask", memory[2]);
    numa_setlocal_memory(memory[3], BYTES);
    numa_police_memory(memory[3], BYTES);
    print_pages("set local", memory[3]);
    void *page = plain;
    int node = 1, status = -1;
    int result = numa_move_pages(0, 1, &page, &node, &status, 2);
    printf("moved: %d, status %d\n", result, status);
    struct bitmask *from = numa_bitmask_setbit(numa_allocate_nodemask(), 1);
    struct bitmask *to = numa_bitmask_setbit(numa_allocate_nodemask(), 0);
    result = numa_migrate_pages(0, from, to);
    printf("migrated: %d\n", result >= 0);
    print_pages("on node 1", one);
}

int main(void) {
    printf("available %d\n", numa_available());
    struct bitmask *last = numa_allocate_nodemask();
    numa_bitmask_setbit(last, (unsigned)numa_max_node());
    machine();
    masks();
    threads(last);
    policies(last);
    memory(last);
    return 0;
}
