// A library with its own operators, which do not use the C library's heap, like those of tcmalloc and jemalloc.
#include <atomic>
#include <cstddef>
#include <new>

static char memory[1 << 22];
static std::atomic<size_t> used;

void *operator new(size_t bytes, std::align_val_t alignment) {
    size_t align = static_cast<size_t>(alignment);
    if (bytes > sizeof memory / 4) throw std::bad_alloc();
    size_t begin = used.fetch_add(bytes + align + 16);
    if (begin + bytes + align > sizeof memory) throw std::bad_alloc();
    size_t address = reinterpret_cast<size_t>(memory) + begin;
    return reinterpret_cast<void *>((address + align - 1) & ~(align - 1));
}

void *operator new(size_t bytes) { return operator new(bytes, std::align_val_t{16}); }

void operator delete(void *) noexcept {}
void operator delete(void *, std::align_val_t) noexcept {}
