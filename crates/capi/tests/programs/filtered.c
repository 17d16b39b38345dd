/* What a program gets in a container whose seccomp filter forbids NUMA calls, as Docker's default does: each is refused with
 * the reason, and calls that do not need them work. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <nearside.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define FORBID(call) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

static int failures;

static void refused(const char *what, int result, ns_error *error) {
    if (result != -EPERM || strstr(ns_error_text(error), "Operation not permitted") == NULL ||
        strstr(ns_error_text(error), "filter") == NULL) {
        printf("%s: %d, %s\n", what, result, ns_error_text(error));
        failures++;
    }
    ns_error_free(error);
}

int main(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), FORBID(SYS_mbind),      FORBID(SYS_set_mempolicy),
        FORBID(SYS_get_mempolicy),             FORBID(SYS_move_pages), FORBID(SYS_migrate_pages),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("seccomp");
        return 2;
    }
    ns_error *error;
    ns_set *nodes, *cpus;
    int result = ns_nodes("all", &nodes, NULL);
    char *memory = ns_alloc(4096, NS_DEFAULT, NULL, NULL);
    if (result < 0 || memory == NULL || ns_cpus("all", &cpus, NULL) < 0 || ns_run_on(cpus, NULL) < 0)
        printf("a call that no filter forbids fails\n"), failures++;
    memory[0] = 1;
    void *bound = ns_alloc(4096, NS_BIND, nodes, &error);
    refused("ns_alloc", bound == NULL ? -ns_error_code(error) : 0, error);
    result = ns_bind(memory, 4096, NS_BIND, nodes, 0, &error), refused("ns_bind", result, error);
    result = ns_policy_set(NS_BIND, nodes, &error), refused("ns_policy_set", result, error);
    result = ns_policy_get(NULL, NULL, &error), refused("ns_policy_get", result, error);
    result = ns_where(memory, 4096, NULL, 0, NULL, &error), refused("ns_where", result, error);
    result = ns_migrate_process(0, nodes, nodes, NULL, &error), refused("ns_migrate_process", result, error);
    printf("%d failures\n", failures);
    return failures > 0;
}
