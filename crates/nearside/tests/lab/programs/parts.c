// Four threads, each on the CPU that its argument names, fill a part of their own of one mapping and then access all its
// lines again and again, in a scattered order, near the bandwidth of two nodes. With DEPENDENT, each address depends on the
// line before, and only latency counts. With REST_US, threads wait that long after each sweep, µs.
// Usage: parts MIB_OF_A_PART SWEEPS CPU CPU CPU CPU [CPU CPU CPU CPU], the last for the second half of the sweeps. Prints the
// pages that lie on another node than their part's thread, and the time of the second half of the sweeps, ns.
// PARTS in its environment makes the memory locked, bound (to node 0), hugetlb or shared with a forked child, or makes the
// program exit, exec itself or end its first thread halfway.
#define _GNU_SOURCE
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, PAGE = 4096, LINE = 64 };
static char *memory;
static size_t part, mask;
static int sweeps, cpus[THREADS], later[THREADS];
static unsigned nodes[THREADS];
static long long halfway, end;
static pthread_barrier_t barrier;
static const char *odd = "";
static char **self;
static pid_t child;

static int is(const char *kind) { return strcmp(odd, kind) == 0; }

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void run_on(int cpu, long number) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
    getcpu(NULL, &nodes[number]);
}

static void *work(void *argument) {
    long number = (long)argument;
    run_on(cpus[number], number);
    // Each part begins and ends within a huge page.
    volatile char *mine = memory + number * part;
    for (int turn = 0; turn < THREADS; turn++) {
        pthread_barrier_wait(&barrier);
        if (turn == number)
            for (size_t at = 0; at < part; at += PAGE) mine[at] = 1;
    }
    for (int sweep = 0; sweep < sweeps; sweep++) {
        pthread_barrier_wait(&barrier);
        if (number == 0 && sweep == sweeps / 2) {
            __atomic_store_n(&halfway, now(), __ATOMIC_RELAXED);
            if (is("exit")) _exit(3);
            unsetenv("PARTS");
            if (is("exec")) execv("/proc/self/exe", self);
        }
        if (number == 0 && sweep == 0 && is("forked") && (child = fork()) == 0) pause();
        if (sweep == sweeps / 2) run_on(later[number], number);
#ifdef REST_US
        usleep(REST_US);
#endif
        // A linear congruential generator that returns each number up to the mask once.
        for (size_t turn = 0, line = 0, none = 0; turn <= mask; turn++) {
            line = (line * 1664525 + 1013904223 + none) & mask;
            if (line >= part / LINE) continue;
#ifdef DEPENDENT
            none = mine[line * LINE] & 0x80; // Only the first byte of a page is not 0, and it is 1.
#else
            mine[line * LINE]++;
#endif
        }
    }
    pthread_barrier_wait(&barrier);
    if (number == 0) end = now();
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 3 + THREADS && count != 3 + 2 * THREADS) return 2;
    if (getenv("PARTS")) odd = strdup(getenv("PARTS"));
    self = arguments;
    part = (size_t)(atof(arguments[1]) * (1 << 20)) & ~(size_t)(PAGE - 1);
    for (mask = 1; mask < part / LINE; mask = 2 * mask + 1) {}
    sweeps = atoi(arguments[2]);
    size_t bytes = part * THREADS, huge = 2 << 20;
    // With the whole of its last huge page: a neighbouring mapping's first touch would decide on which node that lies.
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (is("hugetlb") ? MAP_HUGETLB : 0);
    char *mapped = mmap(NULL, (bytes + 3 * huge) & ~(huge - 1), PROT_READ | PROT_WRITE, flags, -1, 0);
    if (mapped == MAP_FAILED) return 1;
    memory = (char *)(((size_t)mapped + huge - 1) & ~(huge - 1));
    unsigned long node_0 = 1;
    if (is("locked") && mlock2(memory, bytes, MLOCK_ONFAULT) != 0) return 1;
    if (is("bound") && syscall(SYS_mbind, memory, bytes, MPOL_BIND, &node_0, 64, 0) != 0) return 1;
    pthread_barrier_init(&barrier, NULL, THREADS);
    pthread_t threads[THREADS];
    for (long number = 0; number < THREADS; number++) {
        cpus[number] = atoi(arguments[3 + number]);
        later[number] = atoi(arguments[count - THREADS + number]);
        pthread_create(&threads[number], NULL, work, (void *)number);
    }
    if (is("first")) {
        while (__atomic_load_n(&halfway, __ATOMIC_RELAXED) == 0) usleep(1000);
        pthread_exit(NULL);
    }
    for (int number = 0; number < THREADS; number++) pthread_join(threads[number], NULL);
    if (child > 0) kill(child, SIGKILL);
    size_t pages = bytes / PAGE, misplaced = 0;
    for (size_t page = 0; page < pages; page++) {
        void *address = memory + page * PAGE;
        int status = -1;
        syscall(SYS_move_pages, 0, 1, &address, NULL, &status, 0);
        misplaced += status != (int)nodes[page * PAGE / part];
    }
    printf("misplaced %zu of %zu, second half %lld ns\n", misplaced, pages, end - halfway);
    return 0;
}
