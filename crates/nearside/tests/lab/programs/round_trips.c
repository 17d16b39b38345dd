// Two threads, on CPUs 0 and 1, wait for each other in loops: prints the time of a round trip in ns, of loops that pause
// and of loops that do not.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static _Atomic int turn, has_begun;
static int rounds, pauses;

static void wait_for(int value) {
    while (atomic_load_explicit(&turn, memory_order_acquire) != value)
        if (pauses)
            __builtin_ia32_pause();
}

static void *run(void *argument) {
    int own = (int)(long)argument;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(own, &cpus);
    pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus);
    if (own)
        has_begun = 1;
    for (int round = 0; round < rounds; round++) {
        wait_for(own);
        atomic_store_explicit(&turn, !own, memory_order_release);
    }
    return NULL;
}

int main(int count, char **arguments) {
    rounds = atoi(arguments[1]);
    for (pauses = 1; pauses >= 0; pauses--) {
        struct timespec begin, end;
        pthread_t other;
        turn = has_begun = 0;
        pthread_create(&other, NULL, run, (void *)1L);
        // It may begin on this CPU.
        while (!has_begun)
            sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &begin);
        run((void *)0L);
        pthread_join(other, NULL);
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("%.0f\n", ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / rounds);
    }
}
