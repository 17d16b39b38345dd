// Hard cases, one per run: the first argument selects it. Each prints what is known about its objects.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <nearside.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <threads.h>
#include <ucontext.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s: %m\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

extern char **environ;
static pthread_key_t key;
static char *self;

static void pairs(int number, size_t bytes) {
    for (int i = 0; i < number; i++) {
        void *volatile object = malloc(bytes);
        CHECK(object);
        free(object);
    }
}

// Threads, and every way for one to exit.

static void *returns(void *bytes) {
    pthread_setspecific(key, malloc(4242));
    pairs(100, (size_t)bytes);
    return NULL;
}

static void *exits(void *bytes) {
    returns(bytes);
    pthread_exit(NULL);
}

static void *waits(void *bytes) {
    returns(bytes);
    for (;;) pause();
}

static int eleven(void *bytes) {
    returns(bytes);
    return 0;
}

static void all_threads(void) {
    pthread_t threads[3];
    thrd_t other;
    pthread_key_create(&key, free);
    void *(*starts[])(void *) = {returns, exits, waits};
    for (size_t i = 0; i < 3; i++) CHECK(!pthread_create(&threads[i], NULL, starts[i], (void *)(1000 + i)));
    CHECK(thrd_create(&other, eleven, (void *)1003) == thrd_success);
    usleep(20000);
    pthread_cancel(threads[2]);
    for (size_t i = 0; i < 3; i++) CHECK(!pthread_join(threads[i], NULL));
    thrd_join(other, NULL);
    // Many, one after the other: rings are reused.
    for (int i = 0; i < 3000; i++) {
        CHECK(!pthread_create(&threads[0], NULL, returns, (void *)2000));
        CHECK(!pthread_join(threads[0], NULL));
    }
}

// Small stacks.

static void *small(void *bytes) {
    pairs(10, (size_t)bytes);
    return NULL;
}

__attribute__((noinline)) static int deep(int levels) {
    if (!levels) {
        pairs(10, 3001);
        return 0;
    }
    int result = deep(levels - 1);
    asm volatile("" : "+r"(result));
    return result + 1;
}

// One call chain per level, more than the cache holds.
__attribute__((noinline)) static int each_level(int levels, size_t bytes) {
    pairs(1, bytes);
    int result = levels ? each_level(levels - 1, bytes) : 0;
    asm volatile("" : "+r"(result));
    return result + 1;
}

static ucontext_t caller, coroutine;

static void in_coroutine(void) {
    pairs(10, 3002);
    swapcontext(&coroutine, &caller);
}

static void handler(int signal) {
    (void)signal;
    pairs(1, 3003);
}

static void all_stacks(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    CHECK(!pthread_attr_setstacksize(&attributes, 16384));
    CHECK(!pthread_create(&thread, &attributes, small, (void *)3000));
    CHECK(!pthread_join(thread, NULL));
    CHECK(deep(10000) == 10000);
    char *stack = malloc(16384);
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = 16384;
    makecontext(&coroutine, in_coroutine, 0);
    swapcontext(&caller, &coroutine);
    free(stack);
    stack_t alternative = {.ss_sp = malloc(SIGSTKSZ), .ss_size = SIGSTKSZ};
    CHECK(!sigaltstack(&alternative, NULL));
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    CHECK(!sigaction(SIGUSR1, &action, NULL));
    raise(SIGUSR1);
}

// A signal handler that allocates, at any point of the library's code.

static volatile sig_atomic_t handled;

static void allocates(int signal) {
    (void)signal;
    int error = errno;
    free(malloc(5001));
    handled++;
    errno = error;
}

static void signals(void) {
    struct sigaction action = {.sa_handler = allocates, .sa_flags = SA_RESTART};
    CHECK(!sigaction(SIGALRM, &action, NULL));
    struct itimerval timer = {{0, 200}, {0, 200}};
    CHECK(!setitimer(ITIMER_REAL, &timer, NULL));
    long announced = 0;
    while (handled < 500) {
        NEARSIDE_ALLOCATED((void *)0x10000, 5000);
        NEARSIDE_FREED((void *)0x10000);
        announced++;
    }
    timer = (struct itimerval){{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &timer, NULL);
    printf("events %ld\n", 2 * announced + 2 * handled);
}

// Processes.

static void *forks(void *how) {
    pid_t pid = how ? fork() : (pid_t)syscall(SYS_fork);
    if (!pid) {
        pairs(50, how ? 6001 : 6000);
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, small, (void *)6002));
        CHECK(!pthread_join(thread, NULL));
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && !status);
    return NULL;
}

static void *allocates_meanwhile(void *stop) {
    while (!*(volatile int *)stop) pairs(100, 6003);
    return NULL;
}

static void processes(void) {
    int stop = 0, status;
    pthread_t busy, threads[2];
    CHECK(!pthread_create(&busy, NULL, allocates_meanwhile, &stop));
    // Not both at once: the C library's fork holds all heap locks, which a child created by the system call would never
    // get.
    for (size_t how = 0; how < 2; how++) {
        for (size_t i = 0; i < 2; i++) CHECK(!pthread_create(&threads[i], NULL, forks, (void *)how));
        for (size_t i = 0; i < 2; i++) CHECK(!pthread_join(threads[i], NULL));
    }
    stop = 1;
    CHECK(!pthread_join(busy, NULL));
    pid_t pid = vfork();
    if (!pid) {
        execl(self, self, "executed", NULL);
        _exit(9);
    }
    CHECK(waitpid(pid, &status, 0) == pid && !status);
    char *arguments[] = {self, "executed", NULL};
    CHECK(!posix_spawn(&pid, self, NULL, NULL, arguments, environ));
    CHECK(waitpid(pid, &status, 0) == pid && !status);
    pairs(5, 6005);
    execl(self, self, "executed", NULL);
}

// No side effects visible to the program.

static void nothing_to_see(void) {
    printf("first %d\n", open("/dev/null", O_RDONLY));
    fflush(stdout);
    CHECK(!close_range(0, 2, 0) && !close_range(3, ~0u, 0));
    pairs(10, 7000);
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, small, (void *)7001));
    CHECK(!pthread_join(thread, NULL));
    CHECK(open("/dev/null", O_RDONLY) == 0);
    if (!fork()) {
        pairs(10, 7002);
        CHECK(open("/dev/null", O_RDONLY) == 1);
        _exit(0);
    }
    int status;
    wait(&status);
    CHECK(!status);
    for (int i = 0; i < 1000; i++) {
        errno = 77;
        void *object = malloc(7003);
        CHECK(errno == 77);
        free(object);
        CHECK(errno == 77);
        CHECK(!((size_t)object % 16));
    }
    errno = 0;
    CHECK(!malloc(-1ul / 2) && errno == ENOMEM);
}

// Libraries that are loaded and unloaded.

static void libraries(char *first, char *second) {
    char *names[] = {first, second};
    for (int i = 0; i < 20; i++) {
        void *library = dlopen(names[i % 2], RTLD_NOW);
        CHECK(library);
        void *(*allocate)(size_t) = dlsym(library, "allocate");
        CHECK(allocate);
        free(allocate(8000 + i));
        dlclose(library);
    }
}

// A file whose path is longer than the library stores.
static void long_path(void) {
    char folder[] = "/tmp/nearside-long-XXXXXX", name[201] = {0};
    memset(name, 'n', sizeof name - 1);
    CHECK(mkdtemp(folder) && !chdir(folder));
    for (int i = 0; i < 3; i++) CHECK(!mkdir(name, 0700) && !chdir(name));
    int file = open("file", O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0 && !ftruncate(file, 4096));
    void *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    CHECK(mapped != MAP_FAILED);
    printf("object long %p 4096\n", mapped);
    CHECK(!unlink("file"));
    for (int i = 0; i < 3; i++) CHECK(!chdir("..") && !rmdir(name));
    CHECK(!rmdir(folder));
}

// A fork that cannot open a file.
static void silent(void) {
    struct rlimit limit, none = {0, 0};
    void *volatile object = malloc(9001);
    CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
    none.rlim_max = limit.rlim_max;
    CHECK(!setrlimit(RLIMIT_NOFILE, &none));
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        pairs(10, 9002);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && !status);
    CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
    free(object);
    printf("child %d\n", pid);
}

static void *ends_all(void *unused) {
    (void)unused;
    usleep(2000);
    exit(0);
}

static void exit_of_a_thread(void) {
    int never = 0;
    pthread_t threads[3];
    for (int i = 0; i < 2; i++) CHECK(!pthread_create(&threads[i], NULL, allocates_meanwhile, &never));
    CHECK(!pthread_create(&threads[2], NULL, ends_all, NULL));
    for (;;) pause();
}

__attribute__((noinline)) static void *from_pool(size_t bytes) {
    static char pool[1 << 16];
    static size_t used;
    void *object = pool + used;
    used += bytes;
    NEARSIDE_ALLOCATED(object, bytes);
    return object;
}

int main(int count, char **arguments) {
    self = arguments[0];
    const char *name = count > 1 ? arguments[1] : "";
    size_t bytes = count > 2 ? strtoul(arguments[2], NULL, 10) : 0;
    if (!strcmp(name, "threads")) all_threads();
    if (!strcmp(name, "stacks")) all_stacks();
    if (!strcmp(name, "signals")) signals();
    if (!strcmp(name, "processes")) processes();
    if (!strcmp(name, "executed")) pairs(10, 6004);
    if (!strcmp(name, "nothing")) nothing_to_see();
    if (!strcmp(name, "libraries")) libraries(arguments[2], arguments[3]);
    if (!strcmp(name, "long")) long_path();
    if (!strcmp(name, "silent")) silent();
    if (!strcmp(name, "exit")) exit_of_a_thread();
    if (!strcmp(name, "pairs")) pairs(count > 3 ? atoi(arguments[3]) : 10000, bytes);
    if (!strcmp(name, "levels")) CHECK(each_level(1000, bytes) == 1001);
    if (!strcmp(name, "pool")) {
        void *object = from_pool(9000);
        printf("object pool %p 9000\n", object);
        NEARSIDE_FREED(object);
    }
    if (!strcmp(name, "nested")) {
        // The block ends by free, and what is announced at its start by its own call.
        char *block = malloc(3300000);
        printf("object block %p 3300000\n", block);
        NEARSIDE_ALLOCATED(block, 64);
        NEARSIDE_FREED(block);
        NEARSIDE_ALLOCATED(block, 128);
        free(block);
    }
    if (!strcmp(name, "region")) {
        char *memory = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED);
        errno = 77;
        NEARSIDE_NAME_REGION(memory + 4096, 2 << 20, "shared_buffers");
        NEARSIDE_NAME_REGION(memory + (4 << 20), 100, "an index with a long name, of which the kernel would refuse `this`");
        NEARSIDE_NAME_REGION(memory + (6 << 20), 0, "nothing");
        CHECK(errno == 77);
        printf("object region %p %d\nobject index %p 100\n", memory + 4096, 2 << 20, memory + (4 << 20));
        char line[512];
        FILE *maps = fopen("/proc/self/maps", "r");
        while (fgets(line, sizeof line, maps)) if (strstr(line, "[anon:")) fputs(line, stdout);
        fclose(maps);
        NEARSIDE_NAME_REGION(memory + 4096, 2 << 20, NULL);
    }
    return 0;
}
