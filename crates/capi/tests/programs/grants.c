/* What the agent gives a program by the library's calls, and by lines of its own: prints what the kernel says of it. */
#include <nearside.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static ns_error *error;

static void check(int result) {
    if (result < 0) {
        printf("error %d: %s\n", ns_error_code(error), ns_error_text(error));
        exit(1);
    }
}

static void refused(int result) {
    printf("refused %d: %s\n", -result, ns_error_text(error));
    ns_error_free(error);
}

static void print_file(const char *path, const char *beginning) {
    char line[256];
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, beginning, strlen(beginning)) == 0)
            fputs(line, stdout);
    if (file != NULL)
        fclose(file);
}

static void print_state(const char *when) {
    printf("%s\n", when);
    print_file("/proc/self/status", "Cpus_allowed_list");
    print_file("/proc/self/status", "Mems_allowed_list");
    print_file("/proc/self/cgroup", "0::");
}

/* A line of the study's calls, and the handles that come with the answer. */
static int ask(const char *line, int *handles, int most) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/run/nearside/reserve.sock"};
    int agent = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(agent, (struct sockaddr *)&address, sizeof address) != 0 || send(agent, line, strlen(line), 0) < 0)
        return -1;
    static char answer[1 << 17];
    char control[256];
    struct iovec part = {answer, sizeof answer - 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(agent, &message, MSG_CMSG_CLOEXEC);
    close(agent);
    if (got < 0)
        return -1;
    answer[got] = 0;
    int count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL; header = CMSG_NXTHDR(&message, header))
        for (size_t at = 0; at < (header->cmsg_len - CMSG_LEN(0)) / sizeof(int) && count < most; at++)
            memcpy(&handles[count++], CMSG_DATA(header) + at * sizeof(int), sizeof(int));
    char *text = strstr(answer, "\"text\"");
    printf("%.*s: %d handles\n", (int)(text == NULL ? got : text - answer - 1), answer, count);
    return count;
}

#define NEW "\"exclusive_cache\":false,\"core_memory_isolated\":true,\"memory_controller_isolated\":false," \
            "\"memory_performance\":\"NO_PREFERENCE\""

int main(int count_of_words, char **words) {
    ns_grant *one = NULL, *two = NULL;
    if (count_of_words > 1 && strcmp(words[1], "inherited") == 0) {
        check(ns_grant_inherited(&one, &error));
        check(ns_grant_release(one, NS_GRANT_CORES | NS_GRANT_MEMORY, &error));
        print_state("released");
        ns_grant_free(one);
        return 0;
    }
    check(ns_grant_new(NS_GRANT_CORE | NS_GRANT_CACHE, NS_GRANT_LATENCY, 1, "{\"name\":\"one\",\"bytes\":\"64M\"}", &one, &error));
    fputs(ns_grant_text(one), stdout);
    check(ns_grant_enter(one, 0, &error));
    print_state("entered");
    check(ns_grant_on_cache(one, 0, NS_GRANT_ANY, NS_ANY_NODE, "{\"name\":\"two\"}", &two, &error));
    fputs(ns_grant_text(two), stdout);
    print_file("/sys/fs/cgroup/cpuset.cpus.isolated", "");
    refused(ns_grant_new(NS_GRANT_CORE, NS_GRANT_ANY, NS_ANY_NODE, NULL, &two, &error));
    ns_grant_free(two);
    usleep(200000);
    print_file("/sys/fs/cgroup/cpuset.cpus.isolated", "");
    check(ns_grant_add_memory(one, 0, NS_GRANT_ANY, 3, &error));
    print_state("more memory");
    refused(ns_grant_add_memory(one, 0, NS_GRANT_ANY, 9, &error));
    check(ns_grant_guard(one, 1, &error));
    print_file("/sys/fs/cgroup/batch/cpu.max", "");
    check(ns_grant_guard(one, 0, &error));
    print_file("/sys/fs/cgroup/batch/cpu.max", "");
    check(ns_grant_release(one, NS_GRANT_CORES, &error));
    print_state("without cores");
    print_file("/sys/fs/cgroup/cpuset.cpus.isolated", "");
    check(ns_grant_release(one, NS_GRANT_MEMORY, &error));
    print_state("without both");
    refused(ns_grant_release(one, NS_GRANT_MEMORY, &error));
    ns_grant_free(one);

    int handles[8], more[8];
    puts("lists");
    int count = ask("[{\"call\":\"rcm_cored_numa_request\"," NEW ",\"numa\":2,\"with\":{\"name\":\"a\"}},"
                    "{\"call\":\"rcm_cored_numa_request\"," NEW ",\"numa\":3,\"with\":{\"name\":\"b\"}}]", handles, 8);
    print_file("/sys/fs/cgroup/cpuset.cpus.isolated", "");
    char line[1024];
    unsigned first = 0;
    FILE *list = popen("nearside reserve list | sed -n 's/^ *\\([0-9]*\\) .* a$/\\1/p'", "r");
    if (list == NULL || fscanf(list, "%u", &first) != 1)
        puts("no grant a");
    pclose(list);
    const char *swap = "[{\"call\":\"rcm_core_mem_release\",\"core\":%u,\"mem\":%u},"
                       "{\"call\":\"rcm_cored_numa_request\"," NEW ",\"numa\":%d,\"with\":{\"name\":\"c\",\"cores\":%d}}]";
    snprintf(line, sizeof line, swap, first, first, 2, 5);
    ask(line, more, 8);
    print_file("/sys/fs/cgroup/cpuset.cpus.isolated", "");
    snprintf(line, sizeof line, swap, first, first, 0, 1);
    ask(line, more, 8);
    print_file("/sys/fs/cgroup/cpuset.cpus.isolated", "");
    for (int handle = 0; handle < count; handle++)
        close(handles[handle]);
    close(more[0]);
    return 0;
}
