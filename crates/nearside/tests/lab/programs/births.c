// Processes and threads that touch memory at once. Six of them begin one after another; each touches 250 pages within
// some 5 ms and sees where they are when it has run for 40. Prints which part of all pages is on the node of the CPU on
// which who has touched them ran at its end, in percent: of processes, and of threads. With `forks` there are processes
// only, and with `alone` one thread that does nothing, beside the first one, which is busy for 30 ms.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 250, BORN = 6 };
static int *local;

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void *touch(void *unused) {
    double began = now_ms();
    char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page < PAGES; page++) {
        memory[page * PAGE] = 1;
        while (now_ms() < began + page * 0.02)
            ;
    }
    usleep(35000);
    void *pages[PAGES];
    int nodes[PAGES];
    unsigned cpu, node;
    for (int page = 0; page < PAGES; page++)
        pages[page] = memory + page * PAGE;
    syscall(SYS_getcpu, &cpu, &node, NULL);
    if (syscall(SYS_move_pages, 0, (long)PAGES, pages, NULL, nodes, 0) != 0)
        perror("move_pages");
    for (int page = 0; page < PAGES; page++)
        __atomic_fetch_add(local, nodes[page] == (int)node, __ATOMIC_RELAXED);
    return unused;
}

static void *nothing(void *unused) { return unused; }

int main(int count, char **arguments) {
    const char *only = count > 1 ? arguments[1] : "";
    if (strcmp(only, "alone") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, nothing, NULL);
        pthread_join(thread, NULL);
        for (double began = now_ms(); now_ms() < began + 30;)
            ;
        return 0;
    }
    local = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int born = 0; born < BORN; born++) {
        if (fork() == 0) {
            touch(NULL);
            _exit(0);
        }
        usleep(3000);
    }
    while (wait(NULL) > 0)
        ;
    printf("%d", *local * 100 / (BORN * PAGES));
    if (strcmp(only, "forks") == 0)
        return 0;
    *local = 0;
    pthread_t threads[BORN];
    for (int born = 0; born < BORN; born++) {
        pthread_create(&threads[born], NULL, touch, NULL);
        usleep(3000);
    }
    for (int born = 0; born < BORN; born++)
        pthread_join(threads[born], NULL);
    printf(" %d\n", *local * 100 / (BORN * PAGES));
}
