/* Each call with arguments that no program should pass: it is refused with a code and a text, and nothing ends. */
#include <errno.h>
#include <nearside-numa-compat.h>
#include <nearside.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

/* One refusal, with the code that it must have. */
static void refused(int line, int result, ns_error *error, int code) {
    const char *text = ns_error_text(error);
    if (result != -code || ns_error_code(error) != code || strncmp(text, "cannot ", 7) != 0) {
        printf("line %d: %d instead of %d: %s\n", line, result, -code, text);
        failures++;
    }
    ns_error_free(error);
}

#define REFUSED(code, call, ...) \
    do { \
        ns_error *error; \
        int result = call(__VA_ARGS__, &error); \
        refused(__LINE__, result, error, code); \
        if (call(__VA_ARGS__, NULL) != -(code)) \
            printf("line %d: another answer without an error\n", __LINE__), failures++; \
    } while (0)

#define HOLDS(fact) \
    do { \
        if (!(fact)) \
            printf("line %d: %s\n", __LINE__, #fact), failures++; \
    } while (0)

static void grants(void) {
    ns_grant *grant = NULL;
    REFUSED(EINVAL, ns_grant_new, 8, 0, NS_ANY_NODE, NULL, &grant);
    REFUSED(EINVAL, ns_grant_new, 0, 4, NS_ANY_NODE, NULL, &grant);
    REFUSED(EINVAL, ns_grant_new, 0, 0, -3, NULL, &grant);
    REFUSED(EINVAL, ns_grant_new, 0, 0, 0, "{", &grant);
    REFUSED(EINVAL, ns_grant_new, 0, 0, 0, "{\"cores\":0}", &grant);
    REFUSED(EINVAL, ns_grant_new, 0, 0, 0, "{\"node\":1}", &grant);
    REFUSED(EINVAL, ns_grant_new, 0, 0, 0, "\xff", &grant);
    REFUSED(EINVAL, ns_grant_new, 0, 0, 0, NULL, NULL);
    REFUSED(EINVAL, ns_grant_on_cache, NULL, 0, 0, NS_ANY_NODE, NULL, &grant);
    REFUSED(EINVAL, ns_grant_add_memory, NULL, 0, 0, 0);
    REFUSED(EINVAL, ns_grant_guard, NULL, 1);
    REFUSED(EINVAL, ns_grant_release, NULL, NS_GRANT_CORES);
    REFUSED(EINVAL, ns_grant_enter, NULL, 0);
    REFUSED(ENODATA, ns_grant_inherited, &grant);
    HOLDS(grant == NULL && ns_grant_id(NULL) == 0 && ns_grant_handle(NULL) == -1 && *ns_grant_text(NULL) == 0);
    ns_grant_free(NULL);
}

static void sets(void) {
    ns_set *set = ns_set_new(), *other = NULL;
    char text[8];
    REFUSED(EINVAL, ns_nodes, NULL, &other);
    REFUSED(EINVAL, ns_nodes, "0", NULL);
    REFUSED(EINVAL, ns_nodes, "0-99999999", &other);
    REFUSED(EINVAL, ns_nodes, "\xff\xfe", &other);
    REFUSED(EINVAL, ns_cpus, "", &other);
    REFUSED(EINVAL, ns_cpus, "3-1", &other);
    REFUSED(EINVAL, ns_set_add, NULL, 1);
    REFUSED(EINVAL, ns_set_add, set, UINT32_MAX);
    HOLDS(other == NULL);
    HOLDS(ns_set_count(NULL) == 0 && !ns_set_has(NULL, 0) && ns_set_next(NULL, -1) == -1 && !ns_set_remove(NULL, 0));
    HOLDS(ns_set_equal(NULL, set) && ns_set_text(NULL, NULL, 0) == 0);
    HOLDS(ns_set_add(set, 1048576, NULL) == 0 && ns_set_add(set, 3, NULL) == 0);
    HOLDS(ns_set_next(set, -1) == 3 && ns_set_next(set, 3) == 1048576 && ns_set_next(set, 1048576) == -1);
    HOLDS(ns_set_text(set, text, sizeof text) == 9 && strcmp(text, "3,10485") == 0);
    HOLDS(ns_set_text(set, text, 1) == 9 && text[0] == 0);
    REFUSED(EINVAL, ns_run_on, set);
    REFUSED(EINVAL, ns_run_on_nodes, set);
    REFUSED(EINVAL, ns_policy_set, NS_BIND, set);
    HOLDS(ns_set_remove(set, 3) == 1 && ns_set_remove(set, 3) == 0);
    ns_set_free(set);
    ns_set_free(NULL);
}

static void *exits(void *argument) { pthread_exit(argument); }

static void *is_cancelled(void *argument) {
    for (;;)
        pthread_testcancel();
    return argument;
}

/* A cancellation that is pending waits until the call has returned. */
static void *calls_cancelled(void *argument) {
    ns_set *nodes = NULL;
    pthread_cancel(pthread_self());
    HOLDS(ns_nodes("all", &nodes, NULL) == 0 && ns_distance(0, 0, NULL) > 0);
    ns_set_free(nodes);
    pthread_testcancel();
    return argument;
}

/* Threads end as those of pthread_create. */
static void ends(void) {
    ns_template *threads = ns_template_new();
    pthread_t thread;
    void *result = NULL;
    HOLDS(ns_template_start(threads, &thread, NULL, exits, &failures, NULL) == 0);
    HOLDS(pthread_join(thread, &result) == 0 && result == &failures);
    HOLDS(ns_template_start(threads, &thread, NULL, is_cancelled, NULL, NULL) == 0);
    HOLDS(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    ns_template_free(threads);
    HOLDS(pthread_create(&thread, NULL, calls_cancelled, NULL) == 0);
    HOLDS(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
}

static void threads(void) {
    ns_set *empty = ns_set_new(), *cpus = NULL;
    pthread_t thread;
    HOLDS(ns_cpus("all", &cpus, NULL) == 0);
    REFUSED(EINVAL, ns_run_on, NULL);
    REFUSED(EINVAL, ns_run_on, empty);
    REFUSED(EINVAL, ns_thread_run_on, -1, cpus);
    REFUSED(ESRCH, ns_thread_run_on, 2147483647, cpus);
    REFUSED(EINVAL, ns_process_run_on, 0, cpus, 3);
    REFUSED(ESRCH, ns_process_run_on, 2147483647, cpus, NS_OVERWRITE);
    ns_template *threads = ns_template_new();
    REFUSED(EINVAL, ns_template_cpus, NULL, cpus);
    REFUSED(EINVAL, ns_template_start, threads, &thread, NULL, NULL, NULL);
    REFUSED(EINVAL, ns_template_start, threads, NULL, NULL, (void *(*)(void *))abort, NULL);
    REFUSED(EINVAL, ns_template_apply, threads, 0, NS_OVERWRITE);
    HOLDS(ns_set_add(empty, 100000, NULL) == 0 && ns_template_cpus(threads, empty, NULL) == 0);
    REFUSED(EINVAL, ns_template_start, threads, &thread, NULL, (void *(*)(void *))abort, NULL);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    REFUSED(EINVAL, ns_template_start, threads, &thread, &attributes, (void *(*)(void *))abort, NULL);
    pthread_attr_destroy(&attributes);
    ns_template_free(threads);
    ns_set_free(empty);
    ns_set_free(cpus);
}

static void memory(void) {
    ns_error *error;
    ns_set *set = ns_set_new();
    HOLDS(ns_set_add(set, 1000, NULL) == 0);
    HOLDS(ns_alloc(0, NS_DEFAULT, NULL, &error) == NULL && ns_error_code(error) == EINVAL);
    ns_error_free(error);
    HOLDS(ns_alloc(SIZE_MAX, NS_DEFAULT, NULL, &error) == NULL && ns_error_code(error) == ENOMEM);
    ns_error_free(error);
    HOLDS(ns_alloc(1, 99, NULL, &error) == NULL && ns_error_code(error) == EINVAL);
    ns_error_free(error);
    HOLDS(ns_alloc(1, NS_BIND, set, &error) == NULL && strstr(ns_error_text(error), "there is no node 1000"));
    ns_error_free(error);
    char *some = ns_alloc(1, NS_DEFAULT, NULL, &error);
    HOLDS(some != NULL && error == NULL && some[0] == 0 && some[4095] == 0);
    REFUSED(EINVAL, ns_free, some + 1, 1);
    REFUSED(EINVAL, ns_free, some, 0);
    REFUSED(EINVAL, ns_free, some, SIZE_MAX);
    REFUSED(EINVAL, ns_bind, some, 0, NS_DEFAULT, NULL, 0);
    REFUSED(EINVAL, ns_bind, some, SIZE_MAX, NS_DEFAULT, NULL, 0);
    REFUSED(EINVAL, ns_bind, some, 1, NS_DEFAULT, NULL, 64);
    REFUSED(EINVAL, ns_bind, some, 1, NS_LOCAL, set, 0);
    REFUSED(EINVAL, ns_migrate, 0, some, 1, NULL, set, 0, NULL);
    REFUSED(EINVAL, ns_migrate, 0, some, 1, NULL, NULL, 0, NULL);
    REFUSED(EINVAL, ns_migrate, -1, some, 1, NULL, set, 0, NULL);
    REFUSED(EINVAL, ns_migrate, 0, some, 1, NULL, set, NS_STRICT, NULL);
    REFUSED(EINVAL, ns_migrate_process, 0, set, set, NULL);
    REFUSED(EINVAL, ns_where, some, SIZE_MAX, NULL, 0, NULL);
    REFUSED(EFAULT, ns_policy_at, NULL, NULL, NULL);
    HOLDS(ns_where(some, 1, NULL, 0, NULL, NULL) == 0 && ns_where(NULL, 0, NULL, 0, NULL, NULL) == 0);
    HOLDS(ns_free(some, 1, NULL) == 0 && ns_free(NULL, 0, NULL) == 0);
    ns_replica *replica = NULL;
    ns_set *all = NULL;
    HOLDS(ns_nodes("all", &all, NULL) == 0);
    REFUSED(EINVAL, ns_replica_new, "x", 0, all, &replica);
    REFUSED(EINVAL, ns_replica_new, NULL, 5, all, &replica);
    REFUSED(EINVAL, ns_replica_new, "x", SIZE_MAX, all, &replica);
    REFUSED(EINVAL, ns_replica_new, "x", 2, set, &replica);
    HOLDS(ns_replica_new("x", 2, all, &replica, NULL) == 0 && ns_replica_read(NULL) == NULL);
    REFUSED(EINVAL, ns_replica_write, replica, 1, "xy", 2);
    REFUSED(EINVAL, ns_replica_write, replica, SIZE_MAX, "xy", 2);
    HOLDS(ns_replica_write(replica, 0, "y", 1, NULL) == 0 && strcmp(ns_replica_read(replica), "y") == 0);
    ns_replica_free(replica);
    /* Its own bytes, which it overwrites. */
    HOLDS(ns_replica_new("abcd", 4, all, &replica, NULL) == 0);
    HOLDS(ns_replica_write(replica, 1, ns_replica_read(replica), 3, NULL) == 0);
    HOLDS(memcmp(ns_replica_read(replica), "aabc", 4) == 0);
    ns_replica_free(replica);
    ns_set_free(all);
    ns_set_free(set);
}

/* Any addresses may have a name: nothing is read there. */
static void names(void) {
    char longest[191 + 1];
    ns_region *region = NULL;
    memset(longest, 'n', 191), longest[191] = 0;
    REFUSED(EINVAL, ns_region_new, NULL, 1, "a", &region);
    REFUSED(EINVAL, ns_region_new, longest, 0, "a", &region);
    REFUSED(EINVAL, ns_region_new, longest, SIZE_MAX, "a", &region);
    REFUSED(EINVAL, ns_region_new, longest, 1, NULL, &region);
    REFUSED(EINVAL, ns_region_new, longest, 1, "", &region);
    REFUSED(EINVAL, ns_region_new, longest, 1, longest, &region);
    REFUSED(EINVAL, ns_region_new, longest, 1, "a", NULL);
    HOLDS(ns_region_new((void *)4096, 1, longest + 1, &region, NULL) == 0);
    ns_region_free(region);
    ns_region_free(NULL);
}

int main(void) {
    int cpu = -1, node = -1;
    ns_facts facts;
    ns_latencies *latencies = NULL;
    HOLDS(ns_version() == NS_VERSION && ns_error_code(NULL) == 0 && *ns_error_text(NULL) == 0);
    HOLDS(ns_here(&cpu, &node, NULL) == 0 && ns_here(NULL, NULL, NULL) == 0 && cpu >= 0 && node >= 0);
    REFUSED(EINVAL, ns_distance, 0, UINT32_MAX);
    REFUSED(EINVAL, ns_node_facts, UINT32_MAX, &facts, sizeof facts);
    REFUSED(EINVAL, ns_node_facts, 0, NULL, sizeof facts);
    REFUSED(ENODATA, ns_huge_pages, node, 4096, NULL, NULL);
    REFUSED(EIO, ns_latencies_load, "/nowhere.toml", &latencies);
    REFUSED(EINVAL, ns_latency_ns, NULL, 0, 0, NULL);
    /* A caller that was compiled with a longer or shorter structure. */
    uint64_t longer[8], shorter = 0;
    memset(longer, 255, sizeof longer);
    HOLDS(ns_node_facts(node, (ns_facts *)longer, sizeof longer, NULL) == 0 && longer[0] > 0 && longer[7] == 0);
    HOLDS(ns_node_facts(node, (ns_facts *)&shorter, sizeof shorter, NULL) == 0 && shorter == longer[0]);
    struct bitmask *cpus = numa_allocate_cpumask();
    HOLDS(numa_node_to_cpus(-1, cpus) == -1 && errno == EINVAL && numa_run_on_node(-2) == -1);
    HOLDS(numa_sched_getaffinity(0, cpus) > 0 && numa_run_on_node(-1) == 0);
    numa_bitmask_free(cpus);
    sets();
    grants();
    threads();
    ends();
    memory();
    names();
    printf("%d failures\n", failures);
    return failures > 0;
}
