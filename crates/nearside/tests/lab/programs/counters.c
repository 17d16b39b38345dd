// Four threads, each on the CPU that its argument names, count in words of their own that are BYTES apart.
// Usage: counters BYTES TURNS CPU CPU CPU CPU. Prints how long that took, s.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 4 };
static char *counters;
static long apart, turns;
static pthread_barrier_t begin;
static int cpus[THREADS];

static void *count(void *argument) {
    long number = (long)argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus[number], &set);
    sched_setaffinity(0, sizeof set, &set);
    pthread_barrier_wait(&begin); // All count at the same time, however long it takes to make a thread.
    volatile long *mine = (volatile long *)(counters + number * apart);
    for (long turn = 0; turn < turns; turn++) *mine += 1;
    return NULL;
}

int main(int count_of_arguments, char **arguments) {
    if (count_of_arguments != 3 + THREADS) return 2;
    apart = atol(arguments[1]), turns = atol(arguments[2]);
    // Larger than what is recorded as a small object.
    if (posix_memalign((void **)&counters, 4096, 1 << 20)) return 1;
    memset(counters, 0, 1 << 20);
    pthread_t threads[THREADS];
    pthread_barrier_init(&begin, NULL, THREADS);
    for (long number = 0; number < THREADS; number++) cpus[number] = atoi(arguments[3 + number]);
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (long number = 0; number < THREADS; number++) pthread_create(&threads[number], NULL, count, (void *)number);
    for (long number = 0; number < THREADS; number++) pthread_join(threads[number], NULL);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    for (long number = 0; number < THREADS; number++)
        if (*(long *)(counters + number * apart) != turns) return 1;
    printf("%f\n", ended.tv_sec - began.tv_sec + (ended.tv_nsec - began.tv_nsec) / 1e9);
}
