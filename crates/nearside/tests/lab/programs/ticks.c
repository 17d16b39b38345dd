// Reads the time stamp counter, and prints: ticks and ns of a sleep, ticks and ns of a loop of reads, and how many times a
// thread read an earlier time than another thread had read before.

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

enum { READS = 20000 };

static _Atomic uint64_t latest;
static _Atomic int earlier;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
}

static void *read_in_turn(void *unused) {
    for (int i = 0; i < READS; i++) {
        uint64_t seen = atomic_load(&latest);
        uint64_t ticks = __rdtsc();
        if (ticks < seen)
            atomic_fetch_add(&earlier, 1);
        while (seen < ticks && !atomic_compare_exchange_weak(&latest, &seen, ticks))
            ;
    }
    return unused;
}

int main(void) {
    uint64_t ns = now_ns(), ticks = __rdtsc();
    struct timespec time = {.tv_nsec = 50000000};
    nanosleep(&time, NULL);
    unsigned cpu;
    uint64_t slept = __rdtscp(&cpu) - ticks;
    printf("%lu %lu\n", slept, now_ns() - ns);

    ns = now_ns();
    ticks = __rdtsc();
    uint64_t last = ticks;
    for (int i = 0; i < READS; i++)
        last = __rdtsc();
    printf("%lu %lu\n", last - ticks, now_ns() - ns);

    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, read_in_turn, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("%d\n", earlier);
}
