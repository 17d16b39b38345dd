/* Objects that are to be on node 1, where the kernel refuses that: prints on how many nodes' pages they are. Argument 1:
 *   filter: a seccomp filter forbids NUMA calls, as Docker's default does
 *   full: node 1 is full; and then has room again
 *   cpuset: nothing; the program's cpuset forbids node 1 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <nearside.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "run_on.h"

#define OBJECTS 2048
#define BYTES 8192UL
#define NODES 4
#define FORBID(call) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

static void forbid(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), FORBID(SYS_mbind),      FORBID(SYS_set_mempolicy),
        FORBID(SYS_get_mempolicy),             FORBID(SYS_move_pages), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        perror("seccomp"), exit(2);
}

/* Allocates, fills, checks and frees objects; with `located`, says where they were. */
static void use(const char *when, int located) {
    static char *objects[OBJECTS];
    uint64_t on[NODES], sum[NODES] = {0};
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = ns_heap_alloc(BYTES, 16, 1, &error);
        check(objects[i] == NULL ? -1 : 0);
        memset(objects[i], i, BYTES);
    }
    for (int i = 0; i < OBJECTS; i++) {
        for (unsigned long at = 0; at < BYTES; at += 512)
            if (objects[i][at] != (char)i)
                printf("%s: object %d has other contents\n", when, i), exit(1);
        if (located) {
            check(ns_where(objects[i], BYTES, on, NODES, NULL, &error));
            for (int node = 0; node < NODES; node++)
                sum[node] += on[node];
        }
        ns_heap_free(objects[i]);
    }
    printf("%s:", when);
    for (int node = 0; node < NODES && located; node++)
        printf(" %s", sum[node] == 0 ? "none" : sum[node] >= OBJECTS * BYTES / 4096 ? "all" : "some");
    printf(located ? "\n" : " all hold their contents\n");
}

int main(int count, char **arguments) {
    const char *what = count == 2 ? arguments[1] : "";
    run_on("0");
    if (strcmp(what, "filter") == 0) {
        forbid();
        use("filtered", 0);
    } else if (strcmp(what, "full") == 0) {
        ns_set *node;
        ns_facts facts;
        check(ns_nodes("1", &node, &error));
        check(ns_node_facts(1, &facts, sizeof facts, &error));
        /* What does not fit goes to other nodes. */
        size_t bytes = facts.free_bytes + (16 << 20);
        char *rest = ns_alloc(bytes, NS_PREFERRED, node, &error);
        check(rest == NULL ? -1 : 0);
        for (size_t at = 0; at < bytes; at += 4096)
            rest[at] = 1;
        use("full", 1);
        check(ns_free(rest, bytes, &error));
        use("with room", 1);
        ns_set_free(node);
    } else {
        use("in the cpuset", 1);
    }
    return 0;
}
