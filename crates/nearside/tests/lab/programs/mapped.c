/* Maps a file and prints how many of its pages are on each node. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096L
#define NODES 4

int main(int count, char **arguments) {
    struct stat found;
    int file = open(arguments[count - 1], O_RDONLY);
    if (file < 0 || fstat(file, &found) != 0)
        return 1;
    char *memory = mmap(NULL, found.st_size, PROT_READ, MAP_SHARED, file, 0);
    int by_node[NODES] = {0}, sum = 0;
    for (long at = 0; at < found.st_size; at += PAGE) {
        sum += memory[at];
        void *page = memory + at;
        int node = -1;
        if (syscall(SYS_move_pages, 0, 1L, &page, NULL, &node, 0) == 0 && node >= 0 && node < NODES)
            by_node[node]++;
    }
    printf("nodes %d %d %d %d, first letters %d, %s\n", by_node[0], by_node[1], by_node[2], by_node[3], sum,
           open(arguments[count - 1], O_WRONLY) < 0 ? "read-only" : "writable");
    return 0;
}
