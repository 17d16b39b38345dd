// One thread a CPU, each with memory bound to one node: as many a node as it has CPUs. The kernel runs threads on any CPU.
// Each follows pointers through its memory until the last of them was kept from some CPUs for a while, or with an argument
// until there is a file of that name, and 5 s at most. Prints one line of JSON: how many of them end on the node of their
// memory; how many may run on all CPUs at the end; and whether a thread that the last one makes while it is kept from some
// may run on all.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64, WORDS = 1 << 20, STEPS = 1000, BIND = 2, CPUS_A_NODE = 2, LIMIT_MS = 5000, LATE_MS = 100 };
static cpu_set_t all;
static int threads;
static const char *stop_file;
static atomic_int near_memory, free_at_end, is_over;
static int late_is_free = -1;
static pthread_barrier_t filled;

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int is_free(void) {
    cpu_set_t now;
    sched_getaffinity(0, sizeof now, &now);
    return CPU_EQUAL(&now, &all);
}

static void *late(void *unused) {
    usleep(1000 * LATE_MS);
    late_is_free = is_free();
    if (!stop_file)
        is_over = 1;
    return unused;
}

static void *wander(void *number) {
    unsigned long node = (unsigned long)number / CPUS_A_NODE, nodes = 1UL << node;
    size_t bytes = WORDS * sizeof(long);
    long *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || syscall(SYS_mbind, memory, bytes, BIND, &nodes, 8 * sizeof nodes, 0) != 0)
        exit(1);
    // One cycle through all words, by a multiplier that has all residues.
    for (long at = 0; at < WORDS; at++)
        memory[at] = (at * 1664525 + 1013904223) & (WORDS - 1);
    pthread_barrier_wait(&filled);
    long from = now_ms(), at = 0;
    pthread_t made;
    int has_made = 0;
    int is_last = (long)number == threads - 1;
    while (!is_over && now_ms() - from < LIMIT_MS) {
        for (int step = 0; step < STEPS; step++)
            at = ((volatile long *)memory)[at];
        if (is_last && !has_made && !is_free())
            has_made = pthread_create(&made, NULL, late, NULL) == 0;
        if (is_last && stop_file && access(stop_file, F_OK) == 0)
            is_over = 1;
    }
    unsigned cpu, now;
    near_memory += getcpu(&cpu, &now) == 0 && now == node;
    free_at_end += is_free();
    if (has_made)
        pthread_join(made, NULL);
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t all_threads[MOST];
    sched_getaffinity(0, sizeof all, &all);
    threads = CPU_COUNT(&all);
    stop_file = count > 1 ? arguments[1] : NULL;
    if (threads > MOST || pthread_barrier_init(&filled, NULL, threads) != 0)
        return 1;
    for (long number = 0; number < threads; number++)
        if (pthread_create(&all_threads[number], NULL, wander, (void *)number) != 0)
            return 1;
    for (int number = 0; number < threads; number++)
        pthread_join(all_threads[number], NULL);
    printf("{\"near\": %d, \"free\": %d, \"late_is_free\": %d}\n", near_memory, free_at_end, late_is_free);
    return 0;
}
