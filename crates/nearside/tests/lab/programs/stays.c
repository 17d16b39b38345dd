// What a program sees of its own placement for 0.6 s, on a machine with at least two nodes. Prints one line of JSON: on how
// many nodes the first thread ran; how many sets of CPUs it could use, and whether it could use all of them more often
// than not; on how many nodes its memory without a policy lay, and its memory that is bound to node 1; on how many
// CPUs a thread ran that has chosen CPU 2; and whether a thread that was started while the first one was confined could
// use all CPUs later.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64, STEPS = 120, MOST = 64, BIND = 2 };
static volatile int done;
static cpu_set_t all;
static int pinned_cpus, late_is_free = -1;

static int count(unsigned long long bits) { return __builtin_popcountll(bits); }

static void busy_ms(long ms) {
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec < ms * 1000000L);
}

static int is_free(void) {
    cpu_set_t now;
    sched_getaffinity(0, sizeof now, &now);
    return CPU_EQUAL(&now, &all);
}

static void *pinned(void *unused) {
    cpu_set_t two;
    CPU_ZERO(&two);
    CPU_SET(2, &two);
    sched_setaffinity(0, sizeof two, &two);
    unsigned long long seen = 0;
    for (; !done; usleep(2000))
        seen |= 1ULL << sched_getcpu();
    pinned_cpus = count(seen);
    return unused;
}

static void *late(void *unused) {
    // Longer than a round: what it inherited is given back by then, unless another round confines it.
    for (int i = 0; i < 10 && late_is_free != 1; i++) {
        busy_ms(15);
        late_is_free = is_free();
    }
    return unused;
}

static unsigned long long nodes_of(char *memory) {
    void *pages[PAGES];
    int nodes[PAGES];
    for (int i = 0; i < PAGES; i++)
        pages[i] = memory + i * PAGE;
    unsigned long long seen = 0;
    if (syscall(SYS_move_pages, 0, PAGES, pages, NULL, nodes, 0) == 0)
        for (int i = 0; i < PAGES; i++)
            if (nodes[i] >= 0)
                seen |= 1ULL << nodes[i];
    return seen;
}

static char *touched(int bound) {
    char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long node = 1UL << 1;
    if (bound && syscall(SYS_mbind, memory, PAGES * PAGE, BIND, &node, 64UL, 0) != 0)
        perror("mbind");
    memset(memory, 1, PAGES * PAGE);
    return memory;
}

int main(void) {
    sched_getaffinity(0, sizeof all, &all);
    cpu_set_t masks[MOST];
    int mask_count = 0, free_steps = 0, is_started = 0;
    unsigned long long ran = 0, of_free = 0, of_bound = 0;
    char *unbound = touched(0), *bound = touched(1);
    pthread_t other, started;
    pthread_create(&other, NULL, pinned, NULL);
    for (int step = 0; step < STEPS; step++) {
        busy_ms(5);
        unsigned cpu, node;
        syscall(SYS_getcpu, &cpu, &node, NULL);
        ran |= 1ULL << node;
        of_free |= nodes_of(unbound);
        of_bound |= nodes_of(bound);
        cpu_set_t mask;
        sched_getaffinity(0, sizeof mask, &mask);
        free_steps += CPU_EQUAL(&mask, &all);
        if (!is_started && !CPU_EQUAL(&mask, &all))
            is_started = !pthread_create(&started, NULL, late, NULL);
        int known = 0;
        for (int i = 0; i < mask_count; i++)
            known |= CPU_EQUAL(&masks[i], &mask);
        if (!known && mask_count < MOST)
            masks[mask_count++] = mask;
    }
    done = 1;
    pthread_join(other, NULL);
    if (is_started)
        pthread_join(started, NULL);
    printf("{\"nodes\": %d, \"sets\": %d, \"mostly_free\": %d, \"of_free\": %d, \"of_bound\": %d, \"pinned\": %d, \"late_is_free\": %d}\n",
           count(ran), mask_count, free_steps > STEPS / 2, count(of_free), count(of_bound), pinned_cpus, late_is_free);
}
