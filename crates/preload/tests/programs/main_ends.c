// The main thread ends before another one.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *work(void *nothing) {
    usleep(100000);
    // The last thread writes it out.
    puts("worked");
    return nothing;
}

int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0)
        return 1;
    pthread_detach(thread);
    pthread_exit(NULL);
}
